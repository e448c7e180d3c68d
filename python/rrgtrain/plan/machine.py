"""Know the memory of machines."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rrgclinical.common.host import memory_of_host
from rrgclinical.common.resolve import nearest
from rrgtrain.errors import UserError
from rrgtrain.run.room import GIB


@dataclass(frozen=True)
class Machine:
    """Describe a device by its memory in bytes; 0 where that is unknown."""

    name: str
    memory: int
    cuda: bool = True


MIB_OF = {
    "h100": 81_559,
    "h200": 143_771,
    "a100-80": 81_920,
    "a100-40": 40_960,
    "l40s": 46_068,
    "a10": 23_028,
}
"""Memory of GPUs in MiB, as nvidia-smi shows it, by the name that `rrgtrain plan --gpu` takes."""


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


def machine_of(name: str, gpu_memory: float | None = None) -> Machine:
    """Find a machine by its name, with `gpu_memory` in GiB if given.

    Raises UserError for an unknown name, or memory that is not positive.
    """
    if name not in (*MIB_OF, "cpu"):
        listed = ", ".join([*MIB_OF, "cpu"])
        raise UserError(f"--gpu {name} is unknown; {nearest(name, [*MIB_OF, 'cpu'])}use {listed}")
    machine = Machine(name, MIB_OF.get(name, 0) << 20)
    if name == "cpu":
        machine = Machine(name, memory_of_host() or 0, cuda=False)
    if gpu_memory is None:
        return machine
    if not 0 < gpu_memory < math.inf:
        raise UserError(f"--gpu-memory {gpu_memory:g}; give the memory of one GPU in GiB")
    return replace(machine, memory=int(gpu_memory * GIB))
