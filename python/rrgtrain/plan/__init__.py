"""Count before a run what it will hold: exact bytes of state, checkpoints and disk."""

from rrgtrain.plan.sizes import (
    KNOWN,
    Sizes,
    StateBytes,
    Weight,
    elements,
    read_sizes,
    sizes_of,
    state_bytes,
    tiny_sizes,
)
from rrgtrain.plan.stage import Host, Setup, StagePlan, machine_of, plan_stage, stage_of
from rrgtrain.plan.verdict import as_json, as_table, fitted, verdict

__all__ = [
    "KNOWN",
    "Host",
    "Setup",
    "Sizes",
    "StagePlan",
    "StateBytes",
    "Weight",
    "as_json",
    "as_table",
    "elements",
    "fitted",
    "machine_of",
    "plan_stage",
    "read_sizes",
    "sizes_of",
    "stage_of",
    "state_bytes",
    "tiny_sizes",
    "verdict",
]
