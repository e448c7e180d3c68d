"""One copy, and one push, of the weights of a step, whoever asks first; never of older ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import gathered, sharding
from rrgpolicy.rollout import Rollout, SamplingRequest, TransformersEngine
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgpolicy.rollout.transformers_engine import likeliest, sample, uniforms
from rrgtrain.rewards import RewardService
from rrgtrain.schema import EvalSettings, RewardSettings
from rrgtrain.train.evaluate import write_reports
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl import train_rl
from tests.rrgpolicy.model.common import prompt, tiny_policy
from tests.rrgtrain.common import recipe, run_of, studies

BF16 = torch.bfloat16


class Pushed(TransformersEngine):
    """An engine that is pushed to, as far as the loop can tell."""

    own_kernels = True

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int | None] = []
        self.policy = tiny_policy(dtype=BF16)

    def update(self, policy: Policy, step: int | None = None) -> None:
        """As the others: the weights of a step once."""
        if step is None or step not in self.steps[-1:]:
            self.steps.append(step)

    def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
        """By weights of its own; of the policy's the vision tower alone is there."""
        assert policy.model.get_submodule("model.visual.blocks.0.attn.qkv").weight.dtype == BF16
        assert [n for n, _ in policy.model.named_parameters() if ".visual." not in n] == []
        return super().generate(self.policy, request)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A 1 for every copy that is made."""
    real, made = gathered._copy, []

    def counted(*of: Any) -> torch.nn.Module:
        made.append(1)
        return real(*of)

    monkeypatch.setattr(gathered, "_copy", counted)
    return made


def trained(sampler: PolicySampler, out: Path, *overrides: str) -> None:
    """Three steps of RL with a validation before each and after the last."""
    policy = tiny_policy(dtype=BF16, masters=True)
    prompts, settings = PromptLoader(policy, "short"), EvalSettings(max_new_tokens=4)

    def validate() -> dict[str, float]:
        write_reports(policy, prompts, studies(2), settings, sampler=sampler)
        return {"micro_f1_13": 0.5}

    cfg = recipe("rl.algorithm=dr_grpo", "rl.steps=3", "rl.eval_every=1", *overrides)
    fields = {"sampler": sampler, "validate": validate, "out": out / "run" / "c" / "best"}
    rewards = RewardService(RewardSettings())
    train_rl(run_of(policy, prompts, studies(5), cfg, rewards=rewards, **fields))


@pytest.mark.parametrize("resample", [0, 2])
@pytest.mark.parametrize("pushed", [False, True])
def test_validation_and_rollouts_share_the_copy_and_the_push_of_a_step(
    pushed: bool, resample: int, tmp_path: Path, copies: list[int]
) -> None:
    engine = Pushed() if pushed else None
    sampler = PolicySampler(lambda _: engine) if pushed else PolicySampler()
    trained(sampler, tmp_path, "rollout.max_gap=9", f"rl.resample={resample}")
    assert len(copies) == 4, "of the vision tower too, which embeds what the engine is sent"
    assert engine is None or engine.steps == [0, 1, 2, 3]


def greedy(sampler: PolicySampler, policy: Policy) -> list[float]:
    request = SamplingRequest(
        [prompt(policy, "s", 1)], group=1, max_new_tokens=6, seeds=[[0]], greedy=True
    )
    with sampler.weights(policy) as sample:
        ((rollout,),) = sample(request)
    return rollout.logps.tolist()


@pytest.mark.parametrize("placed", [True, False])
def test_the_copy_is_dropped_with_its_weights_and_takes_no_part_in_training(placed: bool) -> None:
    policy, sampler = tiny_policy(dtype=BF16, masters=True), PolicySampler()
    if placed:
        sharding.setup("none", policy)
    before = greedy(sampler, policy)
    copy = gathered.gathered(policy)
    masters = dict(policy.model.named_parameters())
    assert copy is not policy.model and all(p.dtype == BF16 for p in copy.parameters())
    assert all(p.dtype == torch.float32 for p in masters.values()), "a checkpoint may be written"
    assert greedy(sampler, policy) == before and gathered.gathered(policy) is copy
    weights = {n: p.detach() * 1.5 for n, p in masters.items()}
    sharding.load_weights(policy, sharding.full_state_dict(weights))
    after = greedy(sampler, policy)
    assert after != before
    sampler.release(policy)
    assert not any(True for _ in copy.parameters()) and greedy(sampler, policy) == after


def test_an_id_of_an_image_is_refused_whatever_engine_sampled_it() -> None:
    policy = tiny_policy()

    class Shown(TransformersEngine):
        def generate(self, policy: Policy, request: SamplingRequest) -> list[list[Rollout]]:
            ids = torch.tensor([5, policy.never_sampled[-1], policy.end_of_turn])
            return [[Rollout(ids, torch.zeros(3), True)] for _ in request.prompts]

    request = SamplingRequest([prompt(policy, "a", 1)], group=1, max_new_tokens=4, seeds=[[1]])
    name = policy.tokenizer.convert_ids_to_tokens(policy.never_sampled[-1])
    with (
        PolicySampler(lambda _: Shown()).weights(policy) as sample,
        pytest.raises(UserError, match=re.escape(f"rollout.engine sampled {name}, which stands")),
    ):
        sample(request)


# Draws and sampling rules.
def test_a_draw_depends_on_its_seed_and_place_alone() -> None:
    alone = uniforms([12345], 8)
    among = uniforms([7, 12345, 2**127], 30)
    assert torch.equal(alone[0], among[1, :8])
    assert alone.dtype == torch.float64
    assert ((among >= 0) & (among < 1)).all()
    assert among.flatten().unique().numel() == among.numel()


def test_the_stream_is_pinned() -> None:
    """A resumed run must draw what the first would have: these values may never change."""
    # Philox-4x64, key 1: the raw words as NumPy documents them, their top 53 bits.
    raw = [r >> 11 for r in np.random.Philox(key=1).random_raw(3).tolist()]
    assert uniforms([1], 3)[0].tolist() == [r / 2**53 for r in raw]


def test_top_p_keeps_the_smallest_set_and_renormalises() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.05, 0.35])
    draws = uniforms([3], 4000)[0]
    ids, logps = sample(probabilities.log().expand(4000, -1), draws, temperature=1.0, top_p=0.8)
    assert ids.unique().tolist() == [1, 3]
    torch.testing.assert_close(logps, (probabilities[ids] / 0.85).log())
    ids, logps = sample(probabilities.log().expand(4000, -1), draws, temperature=1.0, top_p=0.5)
    assert ids.unique().tolist() == [1]
    assert (logps == 0).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.4, 0.9, 1.0])
@pytest.mark.parametrize("never", [[4], [0, 4], [1, 2, 4]])
def test_ids_that_are_never_sampled_are_not_however_likely(never, top_p, temperature):
    """The rest keeps its proportions; log-probs stay those of all ids, but for a nucleus."""
    logits = torch.tensor([1.0, 0.5, -1.0, 0.0, 0.5])
    logits[never] += 9.0
    # the last id is one of them, so a draw at the very end must not fall on it
    draws = torch.cat([uniforms([7], 4000)[0], torch.tensor([0.0, 1 - 2.0**-53]).double()])
    options = {"temperature": temperature, "never": torch.tensor(never)}
    rows = logits.expand(len(draws), -1)
    ids, logps = sample(rows, draws, top_p=top_p, **options)
    assert not torch.isin(ids, options["never"]).any()
    whole = torch.log_softmax(logits / temperature, -1)
    left = whole.exp()
    left[never] = 0
    kept = left if top_p == 1 else torch.where(torch.isin(torch.arange(5), ids), left, 0)
    told = whole if top_p == 1 else (kept / kept.sum()).log()
    torch.testing.assert_close(logps, told[ids])
    wanted = kept / kept.sum()
    seen = torch.bincount(ids, minlength=5) / len(ids)
    assert ((seen - wanted).abs() <= 6 * (wanted * (1 - wanted) / len(ids)).sqrt() + 1e-3).all()
    best, logp = likeliest(logits[None], **options)
    assert best.tolist() == [int(left.argmax())]
    torch.testing.assert_close(logp, whole[best])


def test_likeliest_takes_the_lowest_of_equals() -> None:
    ids, logps = likeliest(torch.tensor([[0.0, 2.0, 2.0]]), temperature=1.0)
    assert ids.tolist() == [1]
    torch.testing.assert_close(logps, torch.tensor([0.0, 2.0, 2.0]).log_softmax(0)[1:2])


def test_a_gpu_that_must_be_deterministic_leaves_its_sums_to_the_cpu(monkeypatch):
    """PyTorch refuses `cumsum` there, and the run would end at its first token."""
    logits, draws = torch.tensor([[2.0, 0.0, -1.0]]), uniforms([5], 1)[:, 0]
    wanted = sample(logits, draws, temperature=1.0, top_p=0.9)
    moved: list[Tensor] = []
    to_cpu = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda self: moved.append(self) or to_cpu(self))
    monkeypatch.setattr(Tensor, "is_cuda", True)
    assert all(map(torch.equal, sample(logits, draws, temperature=1.0, top_p=0.9), wanted))
    assert not moved
    torch.use_deterministic_algorithms(True)
    try:
        found = sample(logits, draws, temperature=1.0, top_p=0.9)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, found, wanted)) and len(moved) == 2
