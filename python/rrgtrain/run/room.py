"""Check that weights and checkpoints have room, before anything is trained."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from rrgclinical.common.host import memory_of_host, room_on_disk
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import nodes, ranks
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe, RlSettings, SftSettings

GIB = 1 << 30
TRAINED_BYTES = 16
"""Bytes of a trained weight: itself, its gradient and two moments, in fp32."""
KEPT_BYTES = 12
"""Bytes of a trained weight in a checkpoint, which has no gradients."""


def check_room(
    recipe: Recipe, policy: Policy, stages: Sequence[str], directory: Path, *, resume: bool
) -> None:
    """Warn of what has no room on this device or disk; with `plan.refuse` raise UserError.

    stages: those that train; without one nothing is looked at. directory: of the run; a resumed one
    has written its checkpoints. What a step computes comes on top (`rrgtrain check --step`).
    Ranks without a group are warned of.
    """
    if not stages:
        return
    lines = []
    trained = sum(p.numel() for p in policy.model.parameters() if p.requires_grad)
    adapter = recipe.policy.lora.rank > 0
    here = nodes.processes_here()
    shards = 1 if adapter or ranks.size() == 1 else recipe.scale.shard or here
    need = TRAINED_BYTES * trained // shards
    if policy.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(policy.device)
        have: int | None = free + torch.cuda.memory_reserved(policy.device)
    else:
        need, have = need * here, memory_of_host()
    if have is not None and need > have:
        lines.append(
            f"{trained:,} weights that train take {gib(need)} with gradients and moments, and "
            f"{gib(have)} of {policy.device.type} memory are free; `rrgtrain plan` says what helps"
        )
    kept = KEPT_BYTES * trained * (recipe.checkpoint.keep + 1)
    if not resume and kept > (free_disk := room_on_disk(directory)):
        lines.append(
            f"checkpoint.keep={recipe.checkpoint.keep} takes {gib(kept)}, and {gib(free_disk)} of "
            f"the disk of {directory} are free; lower it, or name another place by --out"
        )
    if recipe.plan.refuse and lines:
        raise UserError(lines[-1])
    lines += [
        line for stage in stages if (line := idle_ranks(getattr(recipe, stage), ranks.size()))
    ]
    for line in lines if ranks.is_main() else []:
        warnings.warn(line, stacklevel=2)


def idle_ranks(settings: SftSettings | RlSettings, processes: int) -> str:
    """Count in a line the ranks without a group; "" where each has one."""
    if isinstance(settings, SftSettings):
        counts = {"sft.batch": settings.batch}
    else:
        prompts = settings.prompts
        counts = {"rl.prompts": prompts, "rl.minibatch": settings.minibatch or prompts}
    key, count = min(counts.items(), key=lambda each: each[1])
    if count >= processes:
        return ""
    return (
        f"{key}={count} on {processes} processes leaves {processes - count} of them idle in "
        f"{key.partition('.')[0]}: {count} GPUs are of use; start {count}, or raise {key}"
    )


def gib(size: float) -> str:
    """Write bytes in a unit that leaves two or three digits."""
    unit, value = ("GiB", size / GIB) if abs(size) >= GIB else ("MiB", size / (1 << 20))
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.1f} {unit}"
