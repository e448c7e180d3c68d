"""Count what a stage holds on a machine: devices, host, disk."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from rrgclinical.common.host import memory_of_host
from rrgclinical.common.resolve import nearest
from rrgtrain.errors import UserError
from rrgtrain.plan.sizes import (
    FP32,
    Sizes,
    StateBytes,
    Weight,
    copies,
    elements,
    lora_rank,
    sizes_of,
    state_bytes,
)
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


def this_machine() -> Machine:
    """Describe the first GPU of this machine, without one its memory."""
    if not torch.cuda.is_available():
        return machine_of("cpu")
    gpu = torch.cuda.get_device_properties(0)
    return Machine(gpu.name, gpu.total_memory)


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
        return lora_rank(self.recipe.policy)

    @property
    def by_shards(self) -> bool:
        """Tell if each rank reads its own part of the weights."""
        return self.ranks > 1 and not self.lora

    @property
    def here(self) -> int:
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


PHASES = ("start", "update", "rollout")
"""Phases of a device."""
HELD = PHASES[1:]
VLLM_WEIGHTS, VLLM_CACHE = "vLLM's weights", "vLLM's KV cache"


@dataclass(frozen=True)
class Part:
    """Bytes of one part, by phase."""

    name: str
    bytes: dict[str, int]


@dataclass(frozen=True)
class StagePlan:
    """Hold a stage's parts on the device, the host and the disk.

    here: processes of a node.
    """

    stage: str
    device: list[Part]
    host: list[Part]
    disk: list[Part]
    here: int

    def total(self, parts: str, phase: str) -> int:
        """Sum the bytes of a phase, over the parts "device", "host" or "disk"."""
        return sum(part.bytes.get(phase, 0) for part in getattr(self, parts))

    @property
    def peak(self) -> tuple[str, int]:
        """Return the phase that needs most of a device, and its bytes."""
        return max(((p, self.total("device", p)) for p in PHASES), key=lambda each: each[1])


def plan_stage(setup: Setup, stage: str) -> StagePlan:
    """Count one stage, "sft" or "rl"."""
    recipe = setup.recipe
    optimizer = (recipe.rl if stage == "rl" else recipe.sft).optimizer
    weights = setup.weights(stage)
    state = state_bytes(weights, compute=setup.compute, ranks=setup.shards, optimizer=optimizer)
    device = _device(setup, weights, state, stage)
    host, disk = _host(setup, weights, state, stage), _disk(setup, weights, state, stage)
    return StagePlan(stage, _there(device), _there(host), _there(disk), setup.here)


def _there(parts: list[Part]) -> list[Part]:
    return [part for part in parts if any(part.bytes.values())]


def _device(setup: Setup, weights: list[Weight], state: StateBytes, stage: str) -> list[Part]:
    recipe = setup.recipe
    copied = copies(weights, setup.sizes.layers, compute=setup.compute, ranks=setup.ranks)
    # a push to vLLM gathers a layer at a time, and the tower that embeds the images
    whole = state.gathered if recipe.rollout.engine == "transformers" else copied
    parts = [
        Part("weights as loaded", {"start": _loaded(setup, weights, state)}),
        Part("weights", dict.fromkeys(HELD, state.weights)),
        Part("moments", dict.fromkeys(HELD, state.moments)),
        Part("gradients", {"update": state.gradients}),
        Part(f"{recipe.policy.dtype} copies", {"update": copied, "rollout": whole}),
    ]
    # OraPO's preference compares with a reference whatever `rl.beta` is
    prefers = "orapo" in recipe.rl.algorithm.split("+") and recipe.oracle.loss == "dpo"
    if stage == "rl" and (recipe.rl.beta > 0 or prefers):
        parts.append(_reference(setup, weights))
    if recipe.rollout.engine == "vllm":
        served = _served(setup, weights)
        # asleep, it holds nothing while the policy trains
        awake = ("rollout",) if recipe.rollout.sleep else HELD
        rest = max(0, int(recipe.rollout.memory * setup.machine.memory) - served)
        parts.append(Part(VLLM_WEIGHTS, dict.fromkeys(awake, served)))
        parts.append(Part(VLLM_CACHE, dict.fromkeys(awake, rest)))
    return parts


def _loaded(setup: Setup, weights: list[Weight], state: StateBytes) -> int:
    """Count a rank's bytes while the policy is read.

    On several ranks its shards and a whole tensor; then the root is gathered for the first time,
    into a buffer and out of it.
    """
    if not setup.by_shards:
        # the model is read whole, before anything is cut or frozen
        return elements(setup.sizes.weights()) * (setup.compute if setup.lora else FP32)
    largest = max(w.elements * w.itemsize for w in weights)
    root = elements(weights) - elements(weights, "layer", "adapter")
    return state.weights + max(largest, 2 * setup.compute * root)


def _served(setup: Setup, weights: list[Weight]) -> int:
    """Count what vLLM is sent: all but a vision tower that embeds the images here."""
    tower = elements(weights, "tower") if setup.sizes.packed else 0
    return setup.compute * (elements(weights) - tower)


def _reference(setup: Setup, weights: list[Weight]) -> Part:
    """Count the frozen policy of KL, in the dtype of computation.

    With an adapter it is the base with the adapter off, unless `rl.reference` names a checkpoint.
    A copy of the start shares what does not train, another checkpoint nothing.
    """
    copied, reference = 0, setup.recipe.rl.reference
    named = reference != "start"
    if setup.lora:
        named = reference not in ("start", "base", setup.recipe.policy.path)
    if named or not setup.lora:
        weights = [w for w in weights if w.part != "adapter"]
        own = [Weight(w.part, w.shape, trained=False, itemsize=setup.compute) for w in weights]
        if setup.ranks > 1:
            copied = state_bytes(own, compute=setup.compute, ranks=setup.shards).weights
            copied += copies(own, setup.sizes.layers, compute=setup.compute, ranks=setup.ranks)
        else:
            copied = setup.compute * elements(w for w in weights if w.trained or named)
    return Part("reference policy", dict.fromkeys(HELD, copied))


def _host(setup: Setup, weights: list[Weight], state: StateBytes, stage: str) -> list[Part]:
    """List the parts of a node's memory, of all its ranks."""
    rollout, here, cuda = setup.recipe.rollout, setup.here, setup.machine.cuda
    # asleep, vLLM keeps what does not train
    asleep = stage == "rl" and rollout.engine == "vllm" and rollout.sleep and setup.lora > 0
    served = _served(setup, weights)
    loaded = _loaded(setup, weights, state)
    if cuda:  # it gets one tensor after the other; of shards rank 0 maps the file
        loaded = 0 if setup.by_shards else FP32 * max(w.elements for w in weights)
    staged = state.staged if cuda else state.gradients + state.moments
    return [
        Part("weights while loaded", {"start": here * loaded}),
        Part("weights for vLLM", {"run": served * (rollout.engine == "vllm_server")}),
        Part("vLLM's weights asleep", {"run": here * served * (asleep and cuda)}),
        Part("checkpoint's staging", {"run": here * staged}),
    ]


def _disk(setup: Setup, weights: list[Weight], state: StateBytes, stage: str) -> list[Part]:
    """List the parts of the run's directory at its fullest, but for logs and records."""
    recipe = setup.recipe
    trained = sum(w.elements * w.itemsize for w in weights if w.trained)
    # the best one is kept by a tag, and one is written while the last ones stay; none comes more
    # than once a step; before convergence is known, the last validation's stays beside the best
    steps = recipe.rl.steps if stage == "rl" else recipe.sft.steps
    two = stage == "sft" and recipe.sft.choose == "before_convergence"
    count = min(recipe.checkpoint.keep + 2 + two, steps + 1)
    model = sum(w.elements * w.itemsize for w in weights if w.trained or not setup.lora)
    # the server's: all of them, what was trained since, and the file that is written
    server = stage == "rl" and recipe.rollout.engine == "vllm_server"
    return [
        Part(f"{count} checkpoints", {"run": count * (trained + setup.shards * state.moments)}),
        Part("weights at the end", {"run": model}),
        Part("weights for vLLM", {"run": 3 * _served(setup, weights) * server}),
    ]
