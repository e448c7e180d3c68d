"""Refuse a run that cannot fit, and warn of one that fits barely."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rrgtrain.errors import UserError
from rrgtrain.plan.machine import GIB, Host, memory_of_others, this_host, this_machine
from rrgtrain.plan.setup import Part, Setup
from rrgtrain.plan.stage import CONTEXT_BYTES, VLLM_CACHE, VLLM_WEIGHTS, StagePlan, plan_stage
from rrgtrain.plan.workload import lengths_of
from rrgtrain.schema import Recipe

BORDER = 0.10
"""Margin in which a plan is borderline: as far as the formulas may be from a run (unmeasured on a
GPU). What needs more than all there is by this share is refused, by less only warned of. Parts that
are unmeasured or a limit count in a warning and never in a refusal."""


@dataclass(frozen=True)
class Misfit:
    """A need near or beyond the limit, in one `line`; `refused` where beyond."""

    line: str
    refused: bool


def misfits(setup: Setup, plans: Sequence[StagePlan], host: Host) -> list[Misfit]:
    """Compare the plans with the device's memory, the node's and the disk's."""
    lines: list[Misfit] = []
    for plan in plans:
        if not setup.machine.cuda:
            lines += _on_cpu(setup, plan)
        elif setup.machine.memory:
            share = _share_of_vllm(setup, plan)
            lines += share
            for phase in ("start", "update", "optimizer", "rollout", "validation"):
                if share and phase in ("rollout", "validation"):
                    continue
                parts = [p for p in plan.device if p.bytes.get(phase)]
                place = f"{setup.machine.name}'s memory"
                lines += _compare(plan, parts, phase, setup.machine.memory, place)
        if host.memory and setup.machine.cuda:
            for phase in ("start", "run"):
                lines += _compare(plan, plan.host, phase, host.memory, "the host's memory")
        if host.disk is not None:
            lines += _compare(plan, plan.disk, "run", host.disk, "the disk's free room")
    return lines


def _on_cpu(setup: Setup, plan: StagePlan) -> list[Misfit]:
    """Compare what all processes and the node hold with the one memory they share.

    The processes are there already, and what they take is not free any more.
    """
    if not setup.machine.memory:
        return []
    phase, _ = plan.peak
    parts = [replace(p, bytes={phase: setup.here * p.bytes.get(phase, 0)}) for p in plan.device]
    own = [p for p in plan.host if p.name != "processes"]
    parts += [replace(p, bytes={phase: p.bytes.get("run", 0)}) for p in own]
    return _compare(plan, parts, phase, setup.machine.memory, "the memory that is free")


def _share_of_vllm(setup: Setup, plan: StagePlan) -> list[Misfit]:
    """Hold `rollout.memory` against what vLLM needs at least, and what training leaves of a device.

    vLLM looks at the same when it starts: room for one sequence beside the weights, its share free.
    """
    served = next((p.bytes for p in plan.device if p.name == VLLM_WEIGHTS), None)
    if served is None:
        return []
    rollout, text, have = setup.recipe.rollout, setup.sizes.text, setup.machine.memory
    share, size = int(rollout.memory * have), max(served.values())
    tokens = 2 * text.layers * text.key_heads * text.head_width * setup.compute
    least = size + rollout.max_model_len * tokens
    place = f"{setup.machine.name}'s {gib(have)}"
    gives = f"rollout.memory={rollout.memory:g} gives vLLM {gib(share)} of {place}"
    if share < least:
        room = math.ceil(100 * least / have) / 100
        line = (
            f"{gives}, and its weights with one sequence of rollout.max_model_len="
            f"{rollout.max_model_len} take {gib(least)}; change rollout.memory to {room:g} or more"
        )
        return [Misfit(line, refused=True)]
    own = [part for part in plan.device if part.name not in (VLLM_WEIGHTS, VLLM_CACHE)]
    phase = max(("rollout", "validation"), key=lambda p: sum(x.bytes.get(p, 0) for x in own))
    left = have - sum(part.bytes.get(phase, 0) for part in own)
    fitting = math.floor(100 * left / have) / 100
    if share <= left or fitting * have < least:
        return []
    sure = sum(part.bytes.get(phase, 0) for part in own if not part.note)
    line = f"{gives}, and {plan.stage}'s {phase} leaves {gib(left)}; "
    line += f"change rollout.memory to {fitting:g}"
    return [Misfit(line, refused=share + sure > have * (1 + BORDER))]


def _compare(plan: StagePlan, parts: list[Part], phase: str, have: int, place: str) -> list[Misfit]:
    need = sum(part.bytes.get(phase, 0) for part in parts)
    sure = sum(part.bytes.get(phase, 0) for part in parts if not part.note)
    if need <= have * (1 - BORDER):
        return []
    largest = sorted(parts, key=lambda part: -part.bytes.get(phase, 0))
    setting = next((part.setting for part in largest if part.setting), "a larger machine")
    named = largest[0]
    stage = f"{plan.stage}'s {phase}" if phase != "run" else plan.stage
    most = f"{named.name} {gib(named.bytes[phase])}"
    if sure > have * (1 + BORDER):
        text = (
            f"{stage} needs {gib(need)} of {place}, {gib(need - have)} more than its {gib(have)} "
            f"(most of it {most}); change {setting}"
        )
        return [Misfit(text, refused=True)]
    margin = (have - need) / have
    left = f"{margin:.0%} to spare" if margin >= 0 else f"{-margin:.0%} too much"
    unsure = f" and by {gib(need - sure)} of it that are unmeasured or a limit"
    text = (
        f"{stage} needs about {gib(need)} of {place}'s {gib(have)}, {left}, and the plan may be "
        f"off by {BORDER:.0%}{unsure * (need > sure)}; if it fails change {setting}"
    )
    return [Misfit(text, refused=False)]


def require_fit(setup: Setup, plans: Sequence[StagePlan], host: Host) -> None:
    """Warn of what is borderline; UserError for the first of what cannot fit."""
    seen = misfits(setup, plans, host)
    for misfit in seen:
        if misfit.refused:
            raise UserError(misfit.line)
    for misfit in seen:
        warnings.warn(misfit.line, stacklevel=2)


def check_fit(
    recipe: Recipe,
    stages: Sequence[str],
    directory: Path,
    *,
    ranks: int,
    cuda: bool,
    resume: bool,
    node: int | None = None,
    images: int | None = None,
    area: int | None = None,
) -> list[str]:
    """Plan the stages of a run here, and refuse as `require_fit` does.

    directory: of the run, whose disk must have room; checkpoints lie on it already where it is
        resumed. node: ranks of this node. images, area: of the studies, see `lengths_of`.
    Returns a line a stage that says what it will take.
    """
    host = this_host(directory)
    if resume:
        host = replace(host, disk=None)
    setup = Setup.of(recipe, this_machine(cuda), ranks, cores=host.cores, node=node)
    setup = replace(setup, lengths=lengths_of(recipe, setup.sizes, images=images, area=area))
    plans = [plan_stage(setup, stage) for stage in stages]
    require_fit(setup, plans, host)
    others = memory_of_others() - CONTEXT_BYTES if cuda else 0
    most = max(plan.peak[1] for plan in plans) if plans else 0
    if others > 0 and most + others > setup.machine.memory:
        # it may be free by the time it is wanted
        warnings.warn(
            f"this run needs about {gib(most)} of {setup.machine.name}'s "
            f"{gib(setup.machine.memory)}, and other processes hold {gib(others)}; end them",
            stacklevel=2,
        )
    return summary(setup, plans)


def summary(setup: Setup, plans: Sequence[StagePlan]) -> list[str]:
    """Say in a line a stage what a run will take."""
    lines = []
    for plan in plans:
        phase, most = plan.peak
        lines.append(
            f"{plan.stage} will take about {gib(most)} of {setup.machine.name} memory in its "
            f"{phase}, {gib(plan.total('disk', 'run'))} of disk, and {plan.tokens['update']:,} "
            "tokens a step"
        )
    return lines


def gib(size: float) -> str:
    """Write bytes in a unit that leaves two or three digits."""
    unit, value = ("GiB", size / GIB) if abs(size) >= GIB else ("MiB", size / (1 << 20))
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.1f} {unit}"
