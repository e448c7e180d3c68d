"""Know machines and rates: each with where it comes from, and if it was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch

from rrgclinical.common.host import memory_of_host
from rrgclinical.common.resolve import nearest
from rrgtrain.errors import UserError
from rrgtrain.run.room import GIB
from rrgtrain.train.speed import PEAKS

UNMEASURED = "unmeasured"


@dataclass(frozen=True)
class Machine:
    """Describe a device: memory in bytes, FLOP/s, and bytes a second.

    flops: in bf16. bandwidth: of its memory. link: between devices.
    source: where the figures are from. They are a vendor's ceilings, and none was reached here.
    """

    name: str
    memory: int
    flops: float
    flops_fp32: float
    bandwidth: float
    link: float
    source: str
    cuda: bool = True


def _gpu(
    name: str, peak: str, mebibytes: int, fp32: float, bandwidth: float, link: float
) -> Machine:
    sheet = f"NVIDIA's data sheet of the {peak}; memory as nvidia-smi shows it"
    return Machine(name, mebibytes << 20, PEAKS[peak], fp32, bandwidth, link, sheet)


MACHINES = {
    gpu.name: gpu
    for gpu in (
        _gpu("h100", "H100", 81_559, 6.7e13, 3.35e12, 4.5e11),
        _gpu("h200", "H200", 143_771, 6.7e13, 4.8e12, 4.5e11),
        _gpu("a100-80", "A100", 81_920, 1.95e13, 2.04e12, 3.0e11),
        _gpu("a100-40", "A100", 40_960, 1.95e13, 1.56e12, 3.0e11),
        _gpu("l40s", "L40S", 46_068, 9.16e13, 8.64e11, 3.2e10),
        _gpu("a10", "A10", 23_028, 3.12e13, 6.0e11, 3.2e10),
    )
}
"""GPUs by the name that `rrgtrain plan --gpu` takes."""

# A core of a server, fp32 through PyTorch: an estimate, as are its memory's bytes a second.
CPU_FLOPS, CPU_BANDWIDTH = 1.0e11, 1.0e10


@dataclass(frozen=True)
class Host:
    """Describe a node: bytes of memory and of free disk; None unknown."""

    memory: int | None = None
    disk: int | None = None

    @classmethod
    def of_gib(cls, memory: float | None, disk: float | None) -> Host:
        """Take the sizes of the command line, in GiB; UserError for no size."""
        for name, value in (("--host-memory", memory), ("--disk", disk)):
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} {value:g}; give it in GiB")
        memory_bytes, disk_bytes = (None if v is None else int(v * GIB) for v in (memory, disk))
        return cls(memory_bytes, disk_bytes)


@dataclass(frozen=True)
class Rates:
    """Paces that no data sheet gives; `SOURCES` says where each is from, most are unmeasured."""

    update_share: float = 0.3
    """Share of the peak FLOP/s that an update reaches."""
    forward_share: float = 0.5
    """Share of it in a forward without gradients: reference, prefill, vision tower."""
    read_share: float = 0.6
    """Share of the memory's bandwidth that decoding reaches."""
    launches: float = 70.0
    """Kernel launches of a decoder layer in a token step."""
    launch_seconds: float = 6.5e-6
    """Seconds of a launch where token steps are CUDA graphs, their captures included."""
    graph_seconds: float = 2.0e-3
    """Seconds of the host for each token step of vLLM."""
    wake_seconds: float = 0.5
    """Seconds in which vLLM wakes and sleeps."""
    link_share: float = 0.6
    """Share of the link's bandwidth that gathering weights reaches."""
    image_seconds: float = 0.15
    """Seconds of a core to read and cut one radiograph."""
    edit_seconds: float = 1.0e-3
    """Seconds to edit one report."""
    reward_reports: float = 500.0
    """Reports a second that the reward's models read on one device."""
    record_seconds: float = 0.1
    """Seconds of a step's record, log and barriers."""

    def __post_init__(self) -> None:
        for rate in fields(self):
            if not (value := getattr(self, rate.name)) >= 0:
                raise UserError(f"{rate.name}={value}; a rate is 0 or more")


_STEPS = "measured: paper/editgrpo on an H100 (bench/results/nvidia-h100-80gb-hbm3.jsonl)"
SOURCES = {
    "update_share": _STEPS,
    "launch_seconds": _STEPS,
    "launches": "counted from transformers' Qwen2 layer; 2,500 launches a token at 36 layers",
    "image_seconds": "measured on one core: 58 ms to read a full-size JPEG, 91 ms to cut it",
}
"""Where a rate is from; those that are not here are unmeasured."""


def source_of(rate: str) -> str:
    """Say where a rate is from."""
    return SOURCES.get(rate, UNMEASURED)


def machine_of(name: str, gpu_memory: float | None = None) -> Machine:
    """Find a machine by its name, with `gpu_memory` in GiB if given.

    Raises UserError for an unknown name, or memory that is not positive.
    """
    if name not in (*MACHINES, "cpu"):
        listed = ", ".join([*MACHINES, "cpu"])
        raise UserError(f"--gpu {name} is unknown; {nearest(name, [*MACHINES, 'cpu'])}use {listed}")
    machine = cpu() if name == "cpu" else MACHINES[name]
    if gpu_memory is None:
        return machine
    if not 0 < gpu_memory < math.inf:
        raise UserError(f"--gpu-memory {gpu_memory:g}; give the memory of one GPU in GiB")
    return replace(machine, memory=int(gpu_memory * GIB))


def cpu() -> Machine:
    """Return the cores of this machine as a device; its pace is an estimate."""
    cores = torch.get_num_threads()
    flops = CPU_FLOPS * cores
    memory = memory_of_host() or 0
    source = f"an estimate, {UNMEASURED}"
    return Machine("cpu", memory, flops, flops, CPU_BANDWIDTH, CPU_BANDWIDTH, source, cuda=False)
