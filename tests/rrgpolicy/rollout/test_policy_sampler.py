"""One copy, and one push, of the weights of a step, whoever asks first; never of older ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import gathered, sharding
from rrgpolicy.rollout import Rollout, SamplingRequest, TransformersEngine
from rrgpolicy.rollout.policy_sampler import PolicySampler
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
def test_validation_and_rollouts_share_the_copy_of_a_step(
    resample: int, tmp_path: Path, copies: list[int]
) -> None:
    trained(PolicySampler(), tmp_path, f"rl.resample={resample}")
    assert len(copies) == 4


@pytest.mark.parametrize("resample", [0, 2])
def test_validation_and_rollouts_share_the_push_of_a_step(
    resample: int, tmp_path: Path, copies: list[int]
) -> None:
    engine = Pushed()
    overrides = ["rollout.max_gap=9", f"rl.resample={resample}"]
    trained(PolicySampler(lambda _: engine), tmp_path, *overrides)
    assert engine.steps == [0, 1, 2, 3]
    assert len(copies) == 4, "the vision tower, which embeds what the engine is sent"


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


def test_a_policy_that_trains_what_it_computes_with_is_its_own_copy() -> None:
    policy = tiny_policy()
    assert gathered.gathered(policy) is policy.model
    gathered.drop(policy)
    assert all(p.numel() for p in policy.model.parameters())


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
