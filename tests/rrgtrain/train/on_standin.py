"""Steps of the trainer whose policy is on the stand-in for a GPU: `test_engines.py` runs them.

What they would leave on the CPU, or read from there, is an error at once. The weights are not
written to files: the stand-in has no memory that safetensors could read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgkern.shared_prefix import SharedPrefixBatch
from rrgpolicy.model.policy import Policy
from rrgtrain.log.logs import NoLog
from rrgtrain.rewards import RewardService
from rrgtrain.run.session import Session, warm_up_vision
from rrgtrain.schema import PolicySettings, Recipe
from rrgtrain.train import best
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl import train_rl
from rrgtrain.train.sft import train_sft
from tests.rrgdata.common import studies_under
from tests.rrgkern.standin import NAME, OnStandin
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import phantoms, recipe, run_of, sft_run

STUDIES = studies_under("iu_xray", phantoms())
LEARNS = ["rl.beta=0.01", "rl.lr=0.01", "sft.lr=0.01"]
# each token of a rollout takes a forward here
LEARNS += ["rl.max_new_tokens=4", "eval.max_new_tokens=4"]


@pytest.fixture(autouse=True)
def _weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "save_policy", lambda *_: None)


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan() -> Iterator[None]:
    """What reads memory that nobody has written to is seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def moved(policy: Policy) -> Policy:
    """The policy with its parameters and buffers on the stand-in; tied ones stay tied."""
    places: dict[int, Any] = {}
    for module in policy.model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in places:
                    raw = OnStandin(parameter.detach())
                    places[id(parameter)] = torch.nn.Parameter(raw, parameter.requires_grad)
                module._parameters[name] = places[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = OnStandin(buffer)
    return replace(policy, device=torch.device(NAME, 0))


def on_standin(**options: Any) -> tuple[Policy, PromptLoader]:
    policy = moved(tiny_policy(**options))
    return policy, PromptLoader(policy, "short")


def session_of(cfg: Recipe, policy: Policy, prompts: PromptLoader) -> Session:
    return Session(cfg, STUDIES, policy, prompts, RewardService(cfg.reward))


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    found = {name: p.detach().cpu().clone() for name, p in policy.model.named_parameters()}
    assert all(p.device.type == NAME for p in policy.model.parameters())
    return found


def changed(policy: Policy, run: Callable[[], Any]) -> Any:
    """What `run` gives; it changes the weights, and they stay finite and where they are."""
    before = weights(policy)
    result = run()
    after = weights(policy)
    assert any(not torch.equal(before[name], after[name]) for name in after)
    assert all(p.isfinite().all() for p in after.values())
    return result


@pytest.mark.parametrize(
    "overrides",
    [
        ["rl.algorithm=editgrpo"],
        ["rl.algorithm=editgrpo", "rl.epochs=2", "rl.minibatch=2", "rl.surrogate=clip"],
        ["rl.algorithm=grpo", "policy.gradient_checkpointing=true", "rl.top_p=0.9"],
        ["rl.algorithm=dr_grpo", "rl.resample=1"],
        ["rl.algorithm=ditpo", "token_weights.kind=tfidf"],
        ["rl.algorithm=orapo"],
    ],
    ids=" ".join,
)
def test_reinforcement_learning(overrides: list[str]) -> None:
    cfg = recipe(*LEARNS, *overrides)
    policy, prompts = on_standin(gradient_checkpointing=cfg.policy.gradient_checkpointing)
    session = session_of(cfg, policy, prompts)
    validate, rewards = session.validator(), session.rewards
    run = run_of(policy, prompts, STUDIES["train"], cfg, rewards=rewards, validate=validate)
    changed(policy, lambda: train_rl(run))


def test_fine_tuning_with_its_warm_up_and_validations() -> None:
    cfg = recipe(*LEARNS)
    policy, prompts = on_standin()
    train, warmup = STUDIES["train"], PolicySettings(warmup_steps=2, warmup_lr=1e-3)
    loss = changed(policy, lambda: warm_up_vision(policy, prompts, train, warmup, batch=4))
    assert math.isfinite(loss)
    validate = session_of(cfg, policy, prompts).validator()
    run = sft_run(policy, prompts, train, cfg, validate, Path("nowhere"), NoLog())  # type: ignore[arg-type]
    assert math.isfinite(changed(policy, lambda: train_sft(run)).best_value)


def test_a_batch_left_on_the_cpu_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedPrefixBatch, "to", lambda self, device: self)
    with pytest.raises(BaseException, match="a tensor on standin, another on cpu"):
        test_reinforcement_learning(["rl.algorithm=orapo"])
