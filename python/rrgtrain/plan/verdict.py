"""Compare a plan with its machine, and print it with a measured step."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrgtrain.config import load_config, replaced
from rrgtrain.plan.sizes import elements
from rrgtrain.plan.stage import (
    PHASES,
    VLLM_WEIGHTS,
    Host,
    Part,
    Setup,
    StagePlan,
    plan_stage,
    this_machine,
)
from rrgtrain.run.init import Start
from rrgtrain.run.room import gib
from rrgtrain.schema import Recipe

ROOT = Path(__file__).resolve().parents[3]
# An installed wheel carries the rows of GPUs inside the package.
_FOLDERS = (Path(__file__).resolve().parents[1] / "measured", ROOT / "bench" / "results")
MOST_GPUS = 64
CHANGES: dict[str, Any] = {
    "rollout.sleep": True,
    "policy.freeze_vision": True,
    "rl.optimizer": "adamw_8bit",
    "rl.beta": 0,
    "policy.lora.rank": 64,
}
"""Settings that make state smaller, those first that change a run least."""
STATE_SHARE = 0.7
"""Share of a device that state may take: `paper/editgrpo` on one H100 has 53.8 of 79.6 GiB, and a
measured peak of 60.1."""
OMITTED = (
    "Not counted: activations, the sampler's KV cache, images, models that read reports, CUDA's "
    "context. One real update measures them: rrgtrain check MODEL --recipe RECIPE --step"
)


def verdict(setup: Setup, plan: StagePlan, host: Host) -> tuple[bool, str]:
    """Tell whether state, checkpoints and disk have room, and say it in a line.

    What does not fit is a fact; what fits may still lack room for what a step computes.
    """
    machine, (phase, need) = setup.machine, plan.peak
    if not machine.cuda:  # one memory for all processes of the node
        need = need * plan.here + plan.total("host", "run")
    place = f"each {machine.name}'s" if machine.cuda else "this machine's"
    if machine.memory and need > machine.memory:
        mend = _mend(setup, plan.stage)
        return False, (
            f"does not fit: {plan.stage}'s {phase} holds {gib(need)} of state, more than {place} "
            f"{gib(machine.memory)}; {mend}"
        )
    if line := _share_of_vllm(setup, plan):
        return False, f"does not fit: {line}"
    rooms = [("the disk's", host.disk, plan.total("disk", "run"), "lower checkpoint.keep")]
    if machine.cuda:
        most = max(plan.total("host", each) for each in ("start", "run"))
        rooms.append(("the host's", host.memory, most, "take more nodes"))
    for name, have, size, mend in rooms:
        if have is not None and size > have:
            return False, f"does not fit: {gib(size)} of {name} {gib(have)} are needed; {mend}"
    room = f"{place} {gib(machine.memory)}" if machine.memory else "a memory that is not known"
    return True, f"fits: {plan.stage}'s state takes {gib(need)} of {room} ({phase})"


def fitted(model: str) -> Start:
    """Choose whether a whole model trains on this machine, or an adapter.

    Raises UserError where there is no such model.
    """
    machine = this_machine()
    dtype = {"dtype": "bfloat16" if machine.cuda else "float32"}
    for size in ("paper/qwen_3b", "paper/lora_24gb"):
        policy = dtype if size.endswith("24gb") else {**dtype, "freeze_vision": True}
        words = [f"policy.{key}={value}" for key, value in (policy | {"path": model}).items()]
        setup = Setup.of(load_config(Recipe, f"editgrpo+{size}", words), machine)
        plans = [plan_stage(setup, stage) for stage in ("sft", "rl")]
        largest = max(plans, key=lambda plan: plan.peak[1])
        if largest.peak[1] <= STATE_SHARE * machine.memory:
            break
    whole = "the whole model" if size.endswith("3b") else "an adapter of rank 64"
    line = verdict(setup, largest, Host())[1]
    unmeasured = f"{whole} trains; what a step adds, and minutes: unmeasured, see --step"
    return Start(model, size, policy, f"{line}; {unmeasured}")


def _share_of_vllm(setup: Setup, plan: StagePlan) -> str:
    """Say that vLLM's share does not hold the weights that it is sent; "" where it does."""
    served = next((max(p.bytes.values()) for p in plan.device if p.name == VLLM_WEIGHTS), 0)
    have, memory = setup.machine.memory, setup.recipe.rollout.memory
    if not have or served <= memory * have:
        return ""
    return (
        f"rollout.memory={memory:g} gives vLLM {gib(memory * have)}, and its weights take "
        f"{gib(served)}; raise it beyond {math.ceil(100 * served / have) / 100:g}"
    )


def _mend(setup: Setup, stage: str) -> str:
    """Name the first change that makes the state fit."""
    have = setup.machine.memory
    for key, value in CHANGES.items():
        changed = _changed(setup.recipe, key.split("."), value)
        if plan_stage(dataclasses.replace(setup, recipe=changed), stage).peak[1] <= have:
            return f"{key}={json.dumps(value).strip(chr(34))} would"
    ranks = setup.ranks
    while setup.machine.cuda and (ranks := 2 * ranks) <= MOST_GPUS:
        if plan_stage(dataclasses.replace(setup, ranks=ranks), stage).peak[1] <= have:
            return f"{ranks} GPUs would"
    return "take a larger machine"


def _changed(section: Any, path: list[str], value: Any) -> Any:
    name, *below = path
    inner = _changed(getattr(section, name), below, value) if below else value
    return replaced(section, **{name: inner})


def as_table(setup: Setup, plan: StagePlan, line: str) -> str:
    """Lay a plan out for a terminal, its verdict first."""
    weights, device = setup.weights(plan.stage), "GPU" if setup.machine.cuda else "process"
    trained = elements(w for w in weights if w.trained)
    blocks = [
        [line],
        [
            f"{setup.recipe.policy.path}: {elements(weights) / 1e6:,.1f} M parameters, "
            f"{trained / 1e6:,.1f} M train in {plan.stage}; {setup.ranks} x {setup.machine.name}"
        ],
        _parts(f"memory of each {device}", plan.device, PHASES),
        _parts("memory of a node", plan.host, ("start", "run")),
        _parts("disk", plan.disk, ("run",)),
        [OMITTED.replace(". ", ".\n"), passes_line(setup.recipe, plan.stage)],
    ]
    measured = f"\n{step_line(setup.machine.name)}" if plan.stage == "rl" else ""
    return "\n\n".join(map("\n".join, blocks)) + measured


def passes_line(recipe: Recipe, stage: str) -> str:
    """Say how often reports are written beside a stage's steps, its start in RL included."""
    of, to, rl = getattr(recipe, stage), recipe.eval, stage == "rl"
    passes, count = "2 passes" if rl else "1 pass", math.ceil(of.steps / of.eval_every) + rl
    line = f"Beside the steps: {count:,} validations at most, {passes} over {to.split},"
    return f"{line} {f'{to.limit:,} studies' if to.limit else 'all its studies'} each (eval.limit)."


def _parts(title: str, parts: list[Part], phases: Sequence[str]) -> list[str]:
    used = [p for p in phases if any(part.bytes.get(p) for part in parts)]
    rows = [[title, *used]]
    for part in parts:
        cells = [gib(part.bytes[p]) if part.bytes.get(p) else "-" for p in used]
        rows.append([f"  {part.name}", *cells])
    rows.append(["  in all", *(gib(sum(p.bytes.get(u, 0) for p in parts)) for u in used)])
    first, *rest = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([name.ljust(first), *map(str.rjust, cells, rest)]) for name, *cells in rows]


def as_json(setup: Setup, plan: StagePlan, fits: bool, line: str) -> str:
    """Write a plan as JSON: the verdict, and bytes by part and phase."""
    parts = {n: [*map(dataclasses.asdict, getattr(plan, n))] for n in ("device", "host", "disk")}
    whole = {
        "fits": fits,
        "verdict": line,
        "policy": setup.recipe.policy.path,
        "parameters": elements(setup.weights(plan.stage)),
        "ranks": setup.ranks,
        "machine": dataclasses.asdict(setup.machine),
        "stage": plan.stage,
        "passes": passes_line(setup.recipe, plan.stage),
        **({"measured": step_line(setup.machine.name)} if plan.stage == "rl" else {}),
        **parts,
    }
    return json.dumps(whole, indent=1)


def step_line(gpu: str) -> str:
    """Say what a step of rl took on a GPU of this name."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), ROOT)
    rows = [
        row
        for path in sorted(folder.glob(f"nvidia-{gpu.partition('-')[0]}-*.jsonl"))
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row.get("room") == "update_step"
    ]
    if not rows:
        return f"Seconds: no row of a step on a {gpu} yet; python bench/gpu_step.py writes one."
    row = max(rows, key=lambda row: (row["layers"], row["date"]))
    return (
        f"Seconds of a step of {row['provider']}, {row['case']} weights, {row['prompts']} prompts, "
        f"one {row['device']}:\nsampling {row['seconds/rollout']:.1f}, update "
        f"{row['seconds/update']:.1f}, peak {row['peak_mib'] / 1024:.1f} GiB "
        f"({row['commit'][:7]} of {row['date'][:10]})"
    )
