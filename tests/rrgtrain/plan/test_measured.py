"""Test the plan's bytes and FLOPs against runs of three tiny sizes, within 10 %."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.lora import add_lora
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.tiny import TinyConfig, build_tiny
from rrgpolicy.ranks import ranks, sharding
from rrgpolicy.rollout import SamplingRequest, generate, whole_policy
from rrgtrain.algorithms import Group, Member, Objective
from rrgtrain.algorithms.base import loss_of
from rrgtrain.plan import (
    Mode,
    Packed,
    Sizes,
    StateBytes,
    Weight,
    Workload,
    memory,
    optimizer_peak,
    rollout_peak,
    rollout_work,
    sizes_of,
    state_bytes,
    update_peak,
    update_work,
)
from rrgtrain.schema import LoraSettings, PolicySettings
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.sft import sft_gradients
from tests.rrgpolicy.model.common import REPORTS, prompt
from tests.rrgtrain.common import accumulate, recipe, studies
from tests.rrgtrain.plan.tracker import LiveBytes

CPU_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
CPU_FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, _as_many(key, query), _as_many(value, query))


def _backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    key, value = _as_many(key, query), _as_many(value, query)
    return sdpa_backward_flop_count(gradient, query, key, value)


def _as_many(shape: Any, query: Any) -> Any:
    """`shape` with as many heads as `query`: torch 2.11 counts no others."""
    return (*shape[:1], query[1], *shape[2:])


FORMULAS = {CPU_FLASH: _forward, CPU_FLASH_BACKWARD: _backward}
"""What the counter lacks: attention on a CPU, as it counts that of a GPU."""
SMALL = TinyConfig(width=64, layers=2, vision_layers=2, vocabulary=420)
MIDDLE = TinyConfig(width=128, layers=3, vision_layers=3, vocabulary=600)
LARGE = TinyConfig(width=192, layers=4, vision_layers=2, vocabulary=800)


@dataclass(frozen=True)
class Case:
    """A size of the policy, how it trains, and G members of T tokens about each of B prompts."""

    size: TinyConfig
    groups: int
    members: int
    length: int
    options: tuple[str, ...] = ()

    @property
    def lora(self) -> int:
        return 8 if "lora" in self.options else 0

    @property
    def compute(self) -> int:
        return 2 if "bf16" in self.options else 4


CASES = {
    "rl-small": Case(SMALL, 3, 4, 24),
    "rl-large-frozen-tower": Case(LARGE, 2, 6, 40, ("frozen",)),
    "rl-small-adapter": Case(SMALL, 3, 4, 24, ("lora",)),
    "rl-small-adapter-alone": Case(SMALL, 3, 4, 24, ("lora", "alone")),
    "rl-middle-masters": Case(MIDDLE, 3, 4, 24, ("bf16", "checkpointing")),
    "sft-small": Case(SMALL, 6, 1, 40),
    "sft-middle": Case(MIDDLE, 4, 1, 30),
    "sft-large": Case(LARGE, 4, 1, 30, ("checkpointing",)),
}


@dataclass(frozen=True)
class Measured:
    """Bytes of each part, of the peaks, and FLOPs, of a real step."""

    weights: int
    moments: int
    gradients: int
    update: int
    optimizer: int
    rollout: int
    update_flops: int
    rollout_flops: int
    packed: Packed


class Nowhere:
    """A module tracker that follows none: its hooks fail on a checkpointed module's input."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def counter() -> FlopCounterMode:
    counts = FlopCounterMode(display=False, custom_mapping=FORMULAS)
    counts.mod_tracker = Nowhere()  # type: ignore[assignment]
    return counts


@lru_cache(maxsize=3)
def checkpoint(size: TinyConfig) -> Path:
    return build_tiny(size, REPORTS * 5, Path(mkdtemp(prefix="plan-")))


def policy_of(case: Case) -> Policy:
    policy = load_policy(
        checkpoint(case.size),
        dtype=torch.bfloat16 if case.compute == 2 else torch.float32,
        masters=not case.lora,
        freeze_vision="frozen" in case.options,
        gradient_checkpointing="checkpointing" in case.options,
    )
    add_lora(policy, LoraSettings(rank=case.lora, dropout=0.05), 0)
    return policy


def groups_of(case: Case, policy: Policy) -> list[Group]:
    random = torch.Generator().manual_seed(0)
    return [
        Group(
            b,
            studies(case.groups)[b],
            prompt(policy, f"study-{b}", 1),
            tuple(
                Member(torch.randint(20, 300, (case.length,), generator=random), "")
                for _ in range(case.members)
            ),
        )
        for b in range(case.groups)
    ]


@cache
def measured(name: str) -> Measured:
    """Train two steps and sample once; the second step is counted."""
    case, cfg = CASES[name], recipe("rl.token_budget=100000", "rl.beta=0")
    live = LiveBytes()
    policy = policy_of(case)
    groups = groups_of(case, policy)
    sharding.setup("none", policy)
    live.watch(policy.model)
    held = [live.bytes]
    optimizer = adamw(policy.model, 1e-3, 0.0)
    policy.model.train()
    objective = Objective(
        torch.tensor(([-1.0, 1.0] * case.members)[: case.members] * case.groups),
    )
    alone = "alone" in case.options

    def update() -> None:
        if case.members > 1:
            loss = loss_of(cfg.rl, cfg.rollout)
            accumulate(policy, None, groups, objective, loss, cfg.rl, read_logps=not alone)
            return
        reports = [dataclasses.replace(g.study, report=text(case, policy)) for g in groups]
        sft_gradients(policy, [g.prompt for g in groups], reports, cfg.sft)

    def step() -> None:
        apply_step(optimizer, clip_gradients(policy.model.parameters(), 1.0), 1e-3)

    with live.measured():
        update()
        step()
    held.append(live.bytes)
    with counter() as flops, live.measured():
        update()
    updating, update_flops = live.peak, flops.get_total_flops()
    held.append(live.bytes)
    with live.measured():
        step()
    stepping = live.peak
    request = SamplingRequest(
        [g.prompt for g in groups],
        group=case.members,
        max_new_tokens=case.length,
        seeds=[list(range(case.members))] * case.groups,
    )
    # no report ends early, and the images are not embedded yet
    policy.eos_ids, policy.vision_cache = (10**9,), None
    with counter() as flops, live.measured(), torch.no_grad():
        generate(whole_policy(policy), request)
    return Measured(
        weights=held[0],
        moments=held[1] - held[0],
        gradients=held[2] - held[1],
        update=updating - held[1],
        optimizer=stepping - held[1],
        rollout=live.peak - held[1],
        update_flops=update_flops,
        rollout_flops=flops.get_total_flops(),
        packed=Packed(
            case.groups,
            len(groups[0].prompt.input_ids),
            case.members,
            case.length,
            len(groups[0].prompt.pixel_values),  # type: ignore[arg-type]
            int((groups[0].prompt.input_ids == policy.image_token_id).sum()),
        ),
    )


def text(case: Case, policy: Policy) -> str:
    """A report of as many tokens as the case says, the end of turn included."""
    report, word = "", "a"
    while len(policy.codec.encode(report + word)) <= case.length:
        report += word
    assert len(policy.codec.encode(report)) == case.length
    return report


@dataclass(frozen=True)
class Planned:
    """Hold what the formulas take for a case."""

    sizes: Sizes
    weights: list[Weight]
    work: Workload
    mode: Mode
    state: StateBytes


def planned(name: str) -> Planned:
    case, packed = CASES[name], measured(name).packed
    sizes = sizes_of(PolicySettings(path=str(checkpoint(case.size))))
    weights = sizes.weights(
        lora=case.lora, freeze_vision="frozen" in case.options, compute=case.compute
    )
    return Planned(
        sizes,
        weights,
        Workload("rl", packed, packed, 1, case.members, case.length, 1, *[case.groups] * 2),
        Mode(
            compute=case.compute,
            checkpointing="checkpointing" in case.options,
            lora=case.lora,
            dropout=True,
            sharded=case.compute == 2,
            loss_alone="alone" in case.options,
        ),
        state_bytes(weights, compute=case.compute),
    )


def ratios(name: str) -> dict[str, float]:
    """The plan's numbers over the measured ones."""
    seen, plan = measured(name), planned(name)
    update = update_peak(plan.sizes, plan.weights, plan.work, plan.mode)
    own = {
        "weights": plan.state.weights / seen.weights,
        "moments": plan.state.moments / seen.moments,
        "gradients": plan.state.gradients / seen.gradients,
        "update": update / seen.update,
        "whole peak": (plan.state.weights + plan.state.moments + update)
        / (seen.weights + seen.moments + seen.update),
        "optimizer": (plan.state.gradients + optimizer_peak(plan.weights, 1, Mode(), "adamw"))
        / seen.optimizer,
        "rollout": (plan.state.gathered + rollout_peak(plan.sizes, plan.work, plan.mode))
        / seen.rollout,
        "update FLOPs": update_work(plan.sizes, plan.weights, plan.work.step, plan.mode).total
        / seen.update_flops,
        "rollout FLOPs": rollout_work(plan.sizes, plan.work).total / seen.rollout_flops,
    }
    return own


@pytest.mark.parametrize(("late", "peak"), [(True, 4000), (False, 8000)])
def test_what_a_sender_still_holds_is_no_peak(late: bool, peak: int) -> None:
    """late: a thread lets go after 20 ms, as gloo's does; else it is the code that holds it."""
    ranks.join_alone(cuda=False)
    tracker = LiveBytes()
    with tracker.measured():
        held = [torch.zeros(1000)]
        dist.broadcast(held[0], 0)
        if late:
            thread = threading.Thread(target=lambda: (time.sleep(0.02), held.clear()))
            thread.start()
        torch.zeros(1000)
        torch.zeros(1000)
    assert tracker.peak == peak


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_within_a_tenth_of_the_run(name: str) -> None:
    wrong = {part: ratio for part, ratio in ratios(name).items() if not 0.9 <= ratio <= 1.1}
    assert not wrong, ratios(name)


def test_a_frozen_head_that_nobody_reads_saves_one_product() -> None:
    pair = "rl-small-adapter", "rl-small-adapter-alone"
    saved = measured(pair[0]).update_flops - measured(pair[1]).update_flops
    work = [update_work(p.sizes, p.weights, p.work.step, p.mode) for p in map(planned, pair)]
    assert saved > 0 and work[0].total - work[1].total == pytest.approx(saved)


def lacking(field: str) -> Any:
    """The stages without one of their parts."""
    listed = memory.stages

    def stages(*arguments: Any) -> list[memory.Stage]:
        return [dataclasses.replace(stage, **{field: 0}) for stage in listed(*arguments)]

    return stages


@pytest.mark.parametrize(
    ("name", "place", "planted", "part"),
    [
        ("rl-small", "stages", lacking("kept"), "update"),
        ("sft-large", "stages", lacking("recomputed"), "update"),
        ("rl-small", "_tower", lambda *_: [], "update"),
        ("rl-small", "_attention", lambda *_: 0, "update"),
        ("rl-middle-masters", "copies", lambda *_: memory.Copies(), "update"),
        ("rl-small", "_tower_work", lambda *_: 0, "rollout"),
        ("rl-small", "_moment", lambda *_: (0,), "moments"),
    ],
)
def test_a_part_that_is_dropped_is_noticed(
    name: str, place: str, planted: Any, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, place, planted)
    assert not 0.9 <= ratios(name)[part] <= 1.1
