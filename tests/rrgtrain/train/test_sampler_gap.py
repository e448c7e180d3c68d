"""A sampler that lags or differs: measured at every step, and the run stops before it learns."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rrgdata.study import ImageRef, Study
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.prompt import EncodedPrompt, placed
from rrgpolicy.ranks import gathered, sharding
from rrgpolicy.rollout import (
    Rollout,
    RolloutEngine,
    SamplingRequest,
    TransformersEngine,
    checkpoint_tensors,
    generate,
    whole_policy,
)
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgpolicy.sampler_alarm import ROUNDING
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.algorithms.group import members
from rrgtrain.errors import UserError
from rrgtrain.schema import LoraSettings, Recipe
from rrgtrain.train import SamplerWatch
from rrgtrain.train.loader import PromptLoader
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import Batch, accumulate, groups_of, recipe, studies
from tests.rrgtrain.train.loops import Length, trained

CHAOS = ["rl.algorithm=dr_grpo", "rl.steps=4", "rl.eval_every=9", "rl.lr=0.003", "rl.prompts=3"]
CHAOS += ["rl.group=3", "rl.max_new_tokens=8"]


class Elsewhere(TransformersEngine):
    """Another engine as far as the loop can tell, with weights of its own.

    frozen: the first step whose weights do not arrive. adapters: they arrive too. factor: of the
    temperature. sees: the prompt as it reads it. whole: its log-probs are those of all ids, not of
    what it draws from, as vLLM's.
    """

    own_kernels = True

    def __init__(
        self,
        policy: Policy,
        *,
        frozen: int = 99,
        adapters: bool = True,
        factor: float = 1.0,
        sees: Callable[[EncodedPrompt], EncodedPrompt] = lambda prompt: prompt,
        whole: bool = True,
    ) -> None:
        self.whole = whole
        self.frozen, self.adapters, self.factor, self.sees = frozen, adapters, factor, sees
        self.policy = tiny_policy(dtype=policy.dtype)

    def update(self, policy: Policy, step: int | None = None) -> None:
        if step is None or step < self.frozen:
            given = checkpoint_tensors(whole_policy(policy))
            if not self.adapters:
                given = {n: t for n, t in given.items() if "_proj" not in n}
            self.policy.backbone.load_state_dict(given, strict=False)
            gathered.drop(policy)

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        self.policy.eos_ids = policy.eos_ids
        prompts = [self.sees(prompt) for prompt in request.prompts]
        temperature = request.temperature * self.factor
        policy = self.policy
        if not self.whole:
            policy = replace(policy, left_out=policy.never_sampled)
        return generate(policy, replace(request, prompts=prompts, temperature=temperature))


def without_images(policy: Policy, prompt: EncodedPrompt) -> EncodedPrompt:
    shown = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
    ids = prompt.inputs["input_ids"]
    text = ~torch.isin(ids, torch.tensor(policy.tokenizer.convert_tokens_to_ids(shown)))
    return placed(policy, {"input_ids": ids[text][None]})


def pictured(folder: Path) -> list[Study]:
    """Studies, every other one with a picture of its own."""
    folder.mkdir()
    found = []
    for k, study in enumerate(studies(6)):
        if k % 2:
            path = folder / f"{k}.png"
            drawn = np.random.default_rng(k).integers(0, 255, (112, 112, 3), dtype=np.uint8)
            Image.fromarray(drawn).save(path)
            study = replace(study, images=(ImageRef(path, "frontal", False),))
        found.append(study)
    return found


def run(out: Path, policy: Policy, cfg: Recipe, engine: RolloutEngine | None, **more: Any) -> None:
    sampler = PolicySampler(lambda _: engine or TransformersEngine())
    with torch.random.fork_rng():
        torch.manual_seed(0)  # LoRA's dropout
        trained(out, cfg, policy=policy, sampler=sampler, **more)


def steps(out: Path) -> list[dict]:
    return [r for r in read_metrics(out / "metrics.jsonl") if r["phase"] == "dr_grpo"]


def bits(policy: Policy) -> dict[str, torch.Tensor]:
    """The masters, whole."""
    state = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    return dict(sharding.full_state_dict(state))


class Noting(Length):
    """Remembers the policy's weights of every batch that it is asked about."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy, self.seen = policy, list[dict[str, torch.Tensor]]()

    def __call__(self, reports: Sequence[str], *rest: object) -> dict[str, np.ndarray]:
        self.seen.append(bits(self.policy))
        return super().__call__(reports, *rest)


@pytest.mark.parametrize(
    ("dtype", "dropout"),
    [(torch.float32, None), (torch.float32, 0.5), (torch.bfloat16, 0.0)],
    ids=str,
)
def test_every_step_of_every_engine_logs_a_gap_of_rounding(dropout, dtype, tmp_path):
    given = pictured(tmp_path / "images")
    for name, other in (("own", False), ("other", True), ("vllm", True)):
        policy = tiny_policy(dtype=dtype)
        if dropout is not None:
            add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=dropout), 0)
        engine = Elsewhere(policy, whole=name != "vllm") if other else None
        words = recipe(*CHAOS, "rl.steps=2")
        run(tmp_path / name, policy, words, engine, given=given, rewards=Length())
        rows = steps(tmp_path / name)
        assert len(rows) == 2
        for row in rows:
            assert 0 < row["sampler/gap_mean"] <= row["sampler/gap_p99"]
            assert row["sampler/gap_mean"] < ROUNDING[dtype] / (2 if other else 4)
            assert 0.9 < row["sampler/ess"] <= 1 + 1e-9


LAGS = "weights that the sampler has not taken over, since both agreed in the step before"


@pytest.mark.parametrize(
    ("fault", "dtype", "stops_at", "cause"),
    [
        ({"frozen": 2}, torch.float32, 2, LAGS),
        ({"frozen": 2}, torch.bfloat16, 2, LAGS),
        ({"frozen": 1, "beta": 0.01}, torch.float32, 1, "weights of step 0 in the sampler"),
        ({"adapters": False}, torch.float32, 1, "an adapter that the sampler has lost"),
        ({"adapters": False}, torch.bfloat16, 1, "an adapter that the sampler has lost"),
        (
            {"factor": 0.7},
            torch.float32,
            0,
            r"at (0\.69|0\.7)\d* in the place of rl\.temperature=1 ",
        ),
        ({"factor": 1.25}, torch.bfloat16, 0, r"at 1\.2\d* in the place of rl\.temperature=1 "),
        ({"sees": "smaller images"}, torch.float32, 0, "images of another size .* with images"),
        ({"sees": "no images"}, torch.float32, 0, "images that the sampler does not see"),
        ({"sees": "other tokens"}, torch.float32, 0, r"other prompt tokens \(tokenizer, chat"),
    ],
    ids=str,
)
def test_a_fault_stops_the_run_before_it_learns(fault, dtype, stops_at, cause, tmp_path):
    given, policy, fault = pictured(tmp_path / "images"), tiny_policy(dtype=dtype), dict(fault)
    if "adapters" in fault:
        add_lora(policy, LoraSettings(rank=4, alpha=256.0, dropout=0.05), 0)
    if fault.get("sees") == "smaller images":
        other = tiny_policy(dtype=dtype)
        other.images.bound(28 * 28, 56 * 56)
        smaller = {p.key: p for p in map(PromptLoader(other, "short"), given) if p.key}
        fault["sees"] = lambda prompt: smaller.get(prompt.key, prompt)
    if fault.get("sees") == "no images":
        fault["sees"] = lambda prompt: without_images(policy, prompt)
    if fault.get("sees") == "other tokens":
        fault["sees"] = lambda prompt: replace(
            prompt, inputs={**prompt.inputs, "input_ids": prompt.inputs["input_ids"].roll(1, -1)}
        )
        given = [replace(study, images=()) for study in given]
    cfg = recipe(*CHAOS, f"rl.beta={fault.pop('beta', 0.0)}")
    engine, noting = Elsewhere(policy, **fault), Noting(policy)
    with pytest.raises(UserError, match="more than rollout.max_gap=.*; likely ") as stopped:
        run(tmp_path / "run", policy, cfg, engine, given=given, rewards=noting)
    assert re.search(cause, str(stopped.value)) and "\n" not in str(stopped.value)
    assert [r["step"] for r in steps(tmp_path / "run")] == list(range(stops_at))
    assert len(noting.seen) == stops_at + 1
    now = bits(policy)
    assert all(torch.equal(now[n], p) for n, p in noting.seen[-1].items()), "nothing was learned"
    for one, two in itertools.pairwise(noting.seen):
        assert any(not torch.equal(two[n], p) for n, p in one.items())


def drawn(policy: Policy, cfg: Recipe, shift: float = 0.0) -> list[Group]:
    """Groups whose sampled members say their own log-probabilities, plus `shift`."""
    groups = groups_of(policy, [["x"], ["y"]], edited=True)
    request = SamplingRequest(
        [g.prompt for g in groups],
        group=3,
        temperature=cfg.rl.temperature,
        top_p=cfg.rl.top_p,
        max_new_tokens=12,
        seeds=[[1, 2, 3], [4, 5, 6]],
    )
    made = generate(policy, request)
    return [
        replace(
            g,
            members=(
                *(replace(g.members[0], ids=r.ids, sampler_logps=r.logps + shift) for r in group),
                *g.members[1:],
            ),
        )
        for g, group in zip(groups, made, strict=True)
    ]


def watched(cfg: Recipe, shift: float, advantage: float) -> tuple[dict[str, float], list]:
    """The row of a batch whose members all have this advantage, and what the update has seen."""
    policy, algorithm = tiny_policy(), build_algorithm(cfg)
    watch = SamplerWatch(policy, algorithm, cfg.rl, cfg.rollout.max_gap)
    groups = drawn(policy, cfg, shift)
    given = torch.full((len(members(groups)),), advantage)
    computed = accumulate(policy, None, groups, given, algorithm.loss, cfg.rl).computed
    return watch(Batch.of(groups, given, cfg.rl), computed), list(computed)


@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_a_batch_without_gradient_is_compared_too(advantage: float) -> None:
    cfg = recipe("rl.algorithm=dr_grpo", "rl.temperature=0.7", "rollout.max_gap=0.02")
    row, seen = watched(cfg, -0.01, advantage)
    assert bool(seen) is bool(advantage)
    assert row["sampler/gap_mean"] == pytest.approx(0.01, rel=1e-2)
    assert row["sampler/gap_p99"] == pytest.approx(0.01, rel=1e-2)
    assert row["sampler/ess"] == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(UserError, match="differ by 0.03 nats .* rollout.max_gap=0.02; likely"):
        watched(cfg, -0.03, advantage)
    with pytest.raises(UserError, match="differ by nan"):
        watched(cfg, math.nan, advantage)


def test_a_nucleus_is_compared_as_far_as_it_can_be() -> None:
    cfg = recipe("rl.algorithm=dr_grpo", "rl.top_p=0.8")
    row, _ = watched(cfg, 0.0, 1.0)
    assert row["sampler/gap_mean"] < 1e-4 and "sampler/ess" not in row
    for shift in (-0.3, 0.3):
        with pytest.raises(UserError, match=r"rollout.max_gap=0\.001; likely"):
            watched(cfg, shift, 1.0)
