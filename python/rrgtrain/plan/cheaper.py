"""Find the settings that make a plan fit, by what they cost the user."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rrgtrain.config import replaced
from rrgtrain.plan.setup import Setup
from rrgtrain.plan.stage import StagePlan, plan_stage

WORTH = 0.02
"""Share of what is needed that a change saves, or it is not named."""
MOST_GPUS = 64
ON_GPUS = ("rl.optimizer", "reward.device")

Smaller = Callable[[Any], Any]


def _halved(floor: int) -> Smaller:
    return lambda value: None if value is None or value <= floor else max(floor, value // 2)


def _to(wanted: Any, *before: Any) -> Smaller:
    """Set a value once, of those in `before` if they are named."""
    return lambda value: None if value == wanted or (before and value not in before) else wanted


# Cheapest first, each list with what it costs.
_SPEED = (
    ("eval.batch", _halved(1)),
    ("rl.token_budget", _halved(1024)),
    ("sft.token_budget", lambda value: 32768 if value is None else _halved(1024)(value)),
    ("data.read_ahead", _halved(1)),
    ("data.cache_mib", _halved(0)),
    ("policy.vision_cache_mib", _halved(0)),
    ("data.workers", _halved(1)),
    ("rollout.sleep", _to(True)),
    ("reward.device", _to("cpu")),
    ("policy.gradient_checkpointing", _to(True)),
)
_SAFETY = (
    ("log.records", lambda value: value * 10 if 0 < value < 1000 else None),
    ("checkpoint.keep", _halved(1)),
)
_ROUNDING = (("rl.optimizer", _to("adamw_8bit")),)
_EXPERIMENT = (
    ("rl.prompts", _halved(1)),
    ("rl.beta", _to(0)),
    ("oracle.loss", _to("sft")),
    ("policy.lora.rank", _to(64, 0)),
)
CHEAPER: tuple[tuple[str, Smaller], ...] = (*_SPEED, *_SAFETY, *_ROUNDING, *_EXPERIMENT)


def cheaper(
    setup: Setup, stage: str, need: Callable[[StagePlan], int], room: int
) -> list[tuple[str, int]]:
    """List changes, cheapest first, until `need` of the stage's plan is at most `room`.

    Each is `key=value` with the bytes that are needed once it and those before it are made. What
    saves next to nothing is left out; all may not be enough.
    """
    named, least = [], need(plan_stage(setup, stage))
    for key, smaller in CHEAPER:
        if key in ON_GPUS and not setup.machine.cuda:
            continue
        value, change = _value(setup, key), None
        while least > room and (value := smaller(value)) is not None:
            tried = _with(setup, key, value)
            now = need(plan_stage(tried, stage))
            if now <= least * (1 - WORTH):
                setup, least, change = tried, now, value
        if change is not None:
            named.append((f"{key}={json.dumps(change).strip(chr(34))}", least))
    return named


def enough_gpus(
    setup: Setup, stage: str, need: Callable[[StagePlan], int], room: int
) -> int | None:
    """Double the GPUs until it fits, up to `MOST_GPUS`; None where it does not."""
    ranks = setup.ranks
    while setup.machine.cuda and (ranks := 2 * ranks) <= MOST_GPUS:
        more = replace(setup, ranks=ranks, node=None)
        if need(plan_stage(more, stage)) <= room:
            return ranks
    return None


def _value(setup: Setup, key: str) -> Any:
    return functools.reduce(getattr, key.split("."), setup.recipe)


def _with(setup: Setup, key: str, value: Any) -> Setup:
    return replace(setup, recipe=_replaced(setup.recipe, key.split("."), value))


def _replaced(section: Any, path: list[str], value: Any) -> Any:
    name, *below = path
    return replaced(
        section, **{name: _replaced(getattr(section, name), below, value) if below else value}
    )
