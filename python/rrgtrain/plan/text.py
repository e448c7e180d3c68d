"""Print a plan: a table a stage, every assumption and every unmeasured figure named."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rrgtrain.config import replaced
from rrgtrain.plan.machine import UNMEASURED, source_of
from rrgtrain.plan.setup import Part, Setup
from rrgtrain.plan.sizes import elements
from rrgtrain.plan.stage import PHASES, StagePlan, plan_stage
from rrgtrain.run.room import gib

WIDTH = 100
MOSTLY = 0.5
"""Share of a step from which sampling is worth another engine."""
SHARED_BY = {
    "row": "",
    "cache": ", behind a cache of their prompt",
    "none": ", each with its prompt",
}
"""How prompts are shared, in words where that is not by a row."""


def as_table(setup: Setup, plan: StagePlan) -> str:
    """Lay a plan out for a terminal."""
    machine, work = setup.machine, plan.work
    weights = setup.weights(plan.stage)
    trained = elements(w for w in weights if w.trained)
    memory = f" of {gib(machine.memory)}" if machine.memory else ""
    lines = [
        f"{setup.recipe.policy.path}: {elements(weights) / 1e6:,.1f} M parameters, "
        f"{trained / 1e6:,.1f} M train in {plan.stage}",
        f"{setup.ranks} x {machine.name}{memory}; {machine.source}",
        "",
        f"{plan.stage}: {plan.steps:,} steps of {work.prompts} prompts; of each rank "
        f"{work.step.groups} prompts of {work.step.prompt:,} tokens ({work.images} images), "
        f"{work.step.members} reports of {work.step.report}" + SHARED_BY[setup.sharing],
        "",
        *_parts(f"memory of each {'GPU' if machine.cuda else 'process'}", plan.device, PHASES),
        "",
        *_parts("memory of a node", plan.host, ("start", "run")),
        "",
        *_parts("disk", plan.disk, ("run",)),
        "",
        "tokens of a step: " + ", ".join(f"{k} {v:,}" for k, v in plan.tokens.items()),
        "seconds of a step (estimated): "
        + ", ".join(f"{k} {v:.2f}" for k, v in plan.seconds.items() if v),
        f"a step {plan.step:.1f} s, {plan.steps:,} steps {_hours(plan.step * plan.steps)}, "
        "validation apart",
        *_engine(setup, plan),
        "",
        "Lengths of prompts and reports are assumed; rates by name: " + _rates(setup),
    ]
    return "\n".join(_wrapped(line) for line in lines)


def _engine(setup: Setup, plan: StagePlan) -> list[str]:
    """Say what another engine would make of a step that is mostly sampling."""
    recipe, sampling = setup.recipe, plan.seconds["sampling"]
    mine = recipe.rollout.engine == "transformers"
    if not setup.machine.cuda or not mine or sampling < MOSTLY * plan.step:
        return []
    recipe = replaced(recipe, rollout=replace(recipe.rollout, engine="vllm"))
    faster = plan_stage(replace(setup, recipe=recipe), plan.stage).step
    return [
        f"sampling is {sampling / plan.step:.0%} of the step; rollout.engine=vllm makes it "
        f"{faster:.1f} s"
    ]


def _wrapped(line: str) -> str:
    """Break a sentence at the width of a terminal; a table's row stays one line."""
    return line if line.startswith("  ") else textwrap.fill(line, WIDTH, subsequent_indent="  ")


def _parts(title: str, parts: list[Part], phases: Sequence[str]) -> list[str]:
    used = [p for p in phases if any(part.bytes.get(p) for part in parts)]
    rows = [[title, *used, ""]]
    for part in parts:
        cells = [gib(part.bytes[p]) if part.bytes.get(p) else "-" for p in used]
        rows.append([f"  {part.name}", *cells, part.note])
    totals = [gib(sum(part.bytes.get(p, 0) for part in parts)) for p in used]
    rows.append(["  in all", *totals, ""])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [_row(row, widths) for row in rows]


def _row(row: list[str], widths: list[int]) -> str:
    numbers = [c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip()


def _rates(setup: Setup) -> str:
    listed = []
    for rate in dataclasses.fields(setup.rates):
        value = getattr(setup.rates, rate.name)
        mark = "" if source_of(rate.name) == UNMEASURED else "*"
        listed.append(f"{rate.name}{mark} {value:g}")
    return ", ".join(listed) + f" (* sourced, the others {UNMEASURED})"


def _hours(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def as_json(setup: Setup, plan: StagePlan) -> str:
    """Write a plan as JSON: bytes, tokens and seconds by name, and each rate's source."""
    rates = {
        f.name: {"value": getattr(setup.rates, f.name), "source": source_of(f.name)}
        for f in dataclasses.fields(setup.rates)
    }
    planned: dict[str, Any] = {
        "stage": plan.stage,
        **{
            name: [dataclasses.asdict(part) for part in getattr(plan, name)]
            for name in ("device", "host", "disk")
        },
        "tokens": plan.tokens,
        "seconds": plan.seconds,
        "step_seconds": plan.step,
        "steps": plan.steps,
    }
    whole = {
        "policy": setup.recipe.policy.path,
        "parameters": elements(setup.weights(plan.stage)),
        "ranks": setup.ranks,
        "machine": dataclasses.asdict(setup.machine),
        "rates": rates,
        "stages": [planned],
    }
    return json.dumps(whole, indent=1)
