"""Say for which recipe, model and machine a plan is made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rrgclinical.common.host import memory_of_host
from rrgclinical.common.resolve import nearest
from rrgtrain.errors import UserError
from rrgtrain.plan.sizes import FP32, Sizes, Weight, elements, lora_rank, sizes_of
from rrgtrain.run.room import GIB
from rrgtrain.schema import Recipe


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


GPUS_PER_NODE = 8
"""Ranks that share a node's memory and disk."""


@dataclass(frozen=True)
class Setup:
    """Name a plan's recipe, its model, the ranks and their machine."""

    recipe: Recipe
    sizes: Sizes
    machine: Machine
    ranks: int
    node: int | None = None
    """Ranks of a node; None divides them evenly over nodes of at most `GPUS_PER_NODE`."""

    @classmethod
    def of(cls, recipe: Recipe, machine: Machine, ranks: int = 1) -> Setup:
        """Look the model up; UserError as `sizes_of`."""
        if ranks < 1:
            raise UserError(f"--gpus {ranks}; a run has at least one")
        shard = recipe.scale.shard
        if shard is not None and ranks % shard:
            raise UserError(f"scale.shard={shard} does not divide {ranks} GPUs; use one that does")
        return cls(recipe, sizes_of(recipe.policy), machine, ranks)

    @property
    def compute(self) -> int:
        """Bytes of a number of `policy.dtype`."""
        return 2 if self.recipe.policy.dtype == "bfloat16" else FP32

    @cached_property
    def lora(self) -> int:
        """Rank of the adapter, 0 without one."""
        return lora_rank(self.recipe.policy)

    @property
    def by_shards(self) -> bool:
        """Tell if each rank reads its own part of the weights."""
        return self.ranks > 1 and not self.lora

    @property
    def loaded(self) -> int:
        """Bytes of the model that is read whole, before anything is cut or frozen."""
        whole = elements(self.sizes.weights())
        return whole * (self.compute if self.lora else FP32)

    @property
    def here(self) -> int:
        """Ranks of a node."""
        even = (n for n in range(min(self.ranks, GPUS_PER_NODE), 0, -1) if self.ranks % n == 0)
        return self.node or next(even)

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the weights (`scale.shard`); a node's by default."""
        return self.recipe.scale.shard or self.here

    def weights(self, stage: str) -> list[Weight]:
        """List the parameters as the stage trains them."""
        settings = self.recipe
        return self.sizes.weights(
            lora=self.lora,
            freeze_vision=settings.policy.freeze_vision,
            train=settings.sft.train if stage == "sft" else "all",
            compute=self.compute,
        )


def stage_of(name: str, algorithm: str) -> str:
    """Tell the stage that a recipe is for: "sft" by its name, else "rl".

    `orapo_sft` is reinforcement learning with a cross-entropy of its oracle.
    """
    named = all(re.fullmatch(r"(.*_)?sft", Path(part).stem) for part in name.split("+"))
    return "sft" if named and "orapo" not in algorithm.split("+") else "rl"
