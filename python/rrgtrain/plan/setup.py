"""Say for which recipe, model and machine a plan is made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rrgtrain.errors import UserError
from rrgtrain.plan.known import lora_rank, sizes_of
from rrgtrain.plan.machine import Machine, Rates
from rrgtrain.plan.memory import FP32, Mode
from rrgtrain.plan.sizes import Sizes, Weight, elements
from rrgtrain.schema import Recipe

GPUS_PER_NODE = 8
"""Ranks that share a node's memory and disk."""

AT_MOST = "at most"
"""Note of a limit that a run may stay below."""
ESTIMATED = "estimated"
"""Note of what follows from a model's widths, and was held against no run of such a model."""


@dataclass(frozen=True)
class Part:
    """Bytes of one part, by phase; `note` says if they are unmeasured, or a limit."""

    name: str
    bytes: dict[str, int]
    note: str = ""


@dataclass(frozen=True)
class Setup:
    """Name a plan's recipe, its model, the ranks and their machine."""

    recipe: Recipe
    sizes: Sizes
    machine: Machine
    ranks: int
    rates: Rates
    node: int | None = None
    """Ranks of a node; None divides them evenly over nodes of at most `GPUS_PER_NODE`."""

    @classmethod
    def of(cls, recipe: Recipe, machine: Machine, ranks: int = 1, **options: object) -> Setup:
        """Look the model up; UserError as `sizes_of`."""
        if ranks < 1:
            raise UserError(f"--gpus {ranks}; a run has at least one")
        rates = options.pop("rates", Rates())
        asked = recipe.scale.shard
        if asked is not None and ranks % asked:
            raise UserError(f"scale.shard={asked} does not divide {ranks} GPUs; use one that does")
        sizes = sizes_of(recipe.policy)
        return cls(recipe, sizes, machine, ranks, rates, **options)  # type: ignore[arg-type]

    @property
    def compute(self) -> int:
        """Bytes of a number of `policy.dtype`."""
        return 2 if self.recipe.policy.dtype == "bfloat16" else FP32

    @cached_property
    def lora(self) -> int:
        """Rank of the adapter, 0 without one."""
        return lora_rank(self.recipe.policy)

    @property
    def sharing(self) -> str:
        """Say how prompts are shared: as the recipe names, else as the probe will find."""
        named = self.recipe.policy.sharing
        if named != "auto":
            return named
        return "cache" if self.sizes.by_cache else "row"

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
        """The parameters as the stage trains them."""
        settings = self.recipe
        return self.sizes.weights(
            lora=self.lora,
            freeze_vision=settings.policy.freeze_vision,
            train=settings.sft.train if stage == "sft" else "all",
            compute=self.compute,
        )

    def mode(self, stage: str) -> Mode:
        """Say how the policy computes in a stage."""
        policy, recipe = self.recipe.policy, self.recipe
        oracle = "orapo" in recipe.rl.algorithm.split("+")
        dropout = policy.lora.dropout > 0
        sharded = self.ranks > 1 or self.compute != FP32
        frozen = policy.freeze_vision or self.lora > 0
        return Mode(
            self.compute,
            policy.gradient_checkpointing,
            self.machine.cuda,
            self.lora,
            dropout,
            sharded,
            frozen and policy.vision_cache_mib > 0,
            # of an update with dropout they are not those that the sampler is held against
            loss_alone=stage == "rl" and not oracle and self.lora > 0 and dropout,
            sharing=self.sharing,
        )


def stage_of(name: str, algorithm: str) -> str:
    """Tell the stage that a recipe is for: "sft" by its name, else "rl".

    `orapo_sft` is reinforcement learning with a cross-entropy of its oracle.
    """
    named = all(re.fullmatch(r"(.*_)?sft", Path(part).stem) for part in name.split("+"))
    return "sft" if named and "orapo" not in algorithm.split("+") else "rl"
