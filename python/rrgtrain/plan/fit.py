"""Warn of a run that will not fit or fits barely; refuse what cannot be."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from rrgtrain.errors import UserError
from rrgtrain.plan.cheaper import cheaper, enough_gpus
from rrgtrain.plan.machine import Host
from rrgtrain.plan.setup import Part, Setup
from rrgtrain.plan.stage import PHASES, VLLM_CACHE, VLLM_WEIGHTS, StagePlan
from rrgtrain.run.room import gib, idle_ranks

BORDER = 0.10
"""Margin in which a plan is borderline: as far as the formulas may be from a run (unmeasured on a
GPU). Only with `plan.refuse` is a run refused that needs more than all there is by this share,
parts that are unmeasured or a limit left aside."""
SHOWN = 3
"""Changes that a line names."""

# The parts of a plan that share one memory in a phase.
Parts = Callable[[StagePlan, str], list[Part]]


@dataclass(frozen=True)
class Misfit:
    """A need near or beyond the limit, in one `line`.

    refused: the run must not start."""

    line: str
    refused: bool


@dataclass(frozen=True)
class Room:
    """Memory or disk of `have` bytes, and the parts of a plan there by phase."""

    name: str
    have: int
    phases: tuple[str, ...]
    parts: Parts

    def need(self, plan: StagePlan, *phases: str, sure: bool = False) -> int:
        """Bytes of the fullest phase; `sure` leaves out what is unmeasured or a limit."""
        return max(
            sum(p.bytes.get(phase, 0) for p in self.parts(plan, phase) if not (sure and p.note))
            for phase in phases or self.phases
        )


def misfits(setup: Setup, plan: StagePlan, host: Host) -> list[Misfit]:
    """Compare a plan with the device's memory, the node's and the disk's."""
    idle = idle_ranks(setup.recipe.sft if plan.stage == "sft" else setup.recipe.rl, setup.ranks)
    lines = [Misfit(idle, refused=False)] if idle else []
    rooms = []
    if not setup.machine.cuda:
        rooms.append(Room("the memory that is free", setup.machine.memory, PHASES, _on_cpu))
    elif setup.machine.memory:
        share = _share_of_vllm(setup, plan)
        lines += share
        name = f"{setup.machine.name}'s memory"
        phases = PHASES[:3] if share else PHASES
        rooms.append(Room(name, setup.machine.memory, phases, lambda p, _: p.device))
        if host.memory:
            parts: Parts = lambda p, _: p.host  # noqa: E731
            rooms.append(Room("the host's memory", host.memory, ("start", "run"), parts))
    if host.disk is not None:
        rooms.append(Room("the disk's free room", host.disk, ("run",), lambda p, _: p.disk))
    for room in rooms:
        lines += _compare(setup, plan, room) if room.have or room.phases == ("run",) else []
    return lines


def _on_cpu(plan: StagePlan, phase: str) -> list[Part]:
    """List what all processes and the node hold, which is one memory.

    The processes are there already, and what they take is not free any more.
    """
    here = plan.ranks_here
    parts = [replace(p, bytes={phase: here * p.bytes.get(phase, 0)}) for p in plan.device]
    own = [p for p in plan.host if p.name != "processes"]
    return parts + [replace(p, bytes={phase: p.bytes.get("run", 0)}) for p in own]


def _share_of_vllm(setup: Setup, plan: StagePlan) -> list[Misfit]:
    """Hold `rollout.memory` against what vLLM needs at least, and what training leaves of a device.

    vLLM looks at the same when it starts: room for one sequence beside the weights, its share free.
    That a share is too small for the weights is sure, and refused; what training leaves is not.
    """
    served = next((p.bytes for p in plan.device if p.name == VLLM_WEIGHTS), None)
    if served is None:
        return []
    rollout, have = setup.recipe.rollout, setup.machine.memory
    share, size = int(rollout.memory * have), max(served.values())
    least = size + setup.sizes.cache_bytes(rollout.max_model_len, setup.compute)
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
    beyond = share + sure > have * (1 + BORDER)
    return [Misfit(line, refused=beyond and setup.recipe.plan.refuse)]


def _compare(setup: Setup, plan: StagePlan, room: Room) -> list[Misfit]:
    have, fits = room.have, int(room.have * (1 - BORDER))
    phase = max(room.phases, key=lambda each: room.need(plan, each))
    need, sure = room.need(plan), room.need(plan, sure=True)
    if need <= fits:
        return []
    largest = max(room.parts(plan, phase), key=lambda part: part.bytes.get(phase, 0))
    stage = f"{plan.stage}'s {phase}" if phase != "run" else plan.stage
    change = _changes(setup, plan, room, fits)
    if sure > have * (1 + BORDER):
        refused = setup.recipe.plan.refuse
        text = (
            f"{stage} needs {gib(need)} of {room.name}, {gib(need - have)} more than its "
            f"{gib(have)} (most of it {largest.name} {gib(largest.bytes[phase])}); {change}"
        )
        text += "" if refused else "; this is an estimate, and only plan.refuse=true stops the run"
        return [Misfit(text, refused)]
    margin = (have - need) / have
    left = f"{margin:.0%} to spare" if margin >= 0 else f"{-margin:.0%} too much"
    unsure = f" and by {gib(need - sure)} of it that are unmeasured or a limit"
    text = (
        f"{stage} needs about {gib(need)} of {room.name}'s {gib(have)}, {left}, and the plan may "
        f"be off by {BORDER:.0%}{unsure * (need > sure)}; if it fails {change}"
    )
    return [Misfit(text, refused=False)]


def _changes(setup: Setup, plan: StagePlan, room: Room, fits: int) -> str:
    """Say what to change, cheapest first, with what is needed then."""
    changes = cheaper(setup, plan.stage, room.need, fits)
    words = [f"{change} ({gib(need)})" for change, need in changes[:SHOWN]]
    gpus = enough_gpus(setup, plan.stage, room.need, fits)
    if not changes:
        return f"change to {gpus} GPUs" if gpus else "change to a larger machine"
    more = f", and so on to {changes[-1][0]} ({gib(changes[-1][1])})" * (len(changes) > SHOWN)
    others = f", or take {gpus} GPUs" if gpus else ""
    return f"change {', then '.join(words)}{more}{others}"


def require_fit(setup: Setup, plan: StagePlan, host: Host) -> None:
    """Warn of each misfit; raise UserError for the first that is refused."""
    misses = misfits(setup, plan, host)
    for misfit in misses:
        if misfit.refused:
            raise UserError(misfit.line)
    for misfit in misses:
        warnings.warn(misfit.line, stacklevel=2)
