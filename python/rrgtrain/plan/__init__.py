"""Plan a run before it starts: memory, disk, tokens and seconds."""

from rrgtrain.plan.built import read_sizes
from rrgtrain.plan.cheaper import CHEAPER
from rrgtrain.plan.fit import misfits, require_fit
from rrgtrain.plan.images import image_lengths, pixel_bounds
from rrgtrain.plan.known import KNOWN, lora_rank, sizes_of, tiny_sizes
from rrgtrain.plan.machine import Host, Rates, machine_of, source_of
from rrgtrain.plan.memory import (
    Mode,
    StateBytes,
    optimizer_peak,
    rollout_peak,
    stages,
    state_bytes,
    update_peak,
)
from rrgtrain.plan.setup import Setup, stage_of
from rrgtrain.plan.sizes import Sizes, Weight, elements
from rrgtrain.plan.stage import StagePlan, plan_stage
from rrgtrain.plan.text import as_json, as_table
from rrgtrain.plan.work import rollout_work, update_work
from rrgtrain.plan.workload import Lengths, Packed, Workload

__all__ = [
    "CHEAPER",
    "KNOWN",
    "Host",
    "Lengths",
    "Mode",
    "Packed",
    "Rates",
    "Setup",
    "Sizes",
    "StagePlan",
    "StateBytes",
    "Weight",
    "Workload",
    "as_json",
    "as_table",
    "elements",
    "image_lengths",
    "lora_rank",
    "machine_of",
    "misfits",
    "optimizer_peak",
    "pixel_bounds",
    "plan_stage",
    "read_sizes",
    "require_fit",
    "rollout_peak",
    "rollout_work",
    "sizes_of",
    "source_of",
    "stage_of",
    "stages",
    "state_bytes",
    "tiny_sizes",
    "update_peak",
    "update_work",
]
