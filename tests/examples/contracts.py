"""Signatures through which other trainers call a user's file, each read at a commit.

A test calls the example in the form that stands here, and gives it nothing beside it.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Contract:
    """call: how the trainer calls the user's function. fields: names that it gives or reads."""

    repository: str
    commit: str
    at: tuple[str, ...]
    call: str
    fields: dict[str, tuple[str, ...]]


PRIME_RL = Contract(
    "PrimeIntellect-ai/prime-rl",
    "559b44772e471d1538537b8805cc77f3824a5e64",
    ("src/prime_rl/trainer/rl/loss.py:14", "src/prime_rl/trainer/rl/loss.py:272"),
    "custom_fn(inputs, **kwargs)",
    {
        "LossInputs": (
            *("trainer_logprobs", "inference_logprobs", "ref_logprobs", "advantages"),
            *("loss_mask", "loss_weights"),
        ),
        "LossOutputs": ("loss", "metrics"),
    },
)
MS_SWIFT = Contract(
    "modelscope/ms-swift",
    "3602360a562313afbf2ef6065fdf61f271a2c5b9",
    (
        *("swift/rewards/orm.py:27", "swift/rl_core/grpo_algorithm.py:65"),
        *("swift/rlhf_trainers/grpo_trainer.py:2209", "swift/rlhf_trainers/grpo_trainer.py:1784"),
    ),
    "orms[name](args=args)(completions, **columns, trainer_state=state)",
    {"ORM.__init__": ("args",), "columns": ("trainer_state", "report")},
)
EASYR1 = Contract(
    "hiyouga/EasyR1",
    "b44b311b669bf1fd1aa2fc36f2251482ba33cb16",
    ("verl/workers/reward/function.py:29", "verl/workers/reward/function.py:95"),
    "partial(reward_fn, **reward_function_kwargs)(reward_inputs)",
    {"RewardInput": ("response", "response_length", "ground_truth"), "RewardScore": ("overall",)},
)
OPENRLHF = Contract(
    "OpenRLHF/OpenRLHF",
    "3c3be6234e0cb353e76bb8019947db9dfe99fca7",
    ("openrlhf/utils/agent.py:200", "openrlhf/utils/agent.py:314"),
    "asyncio.to_thread(reward_func, queries, prompts, labels)",
    {"rewards_info": ("rewards", "scores", "extra_logs")},
)
CONTRACTS = {
    "prime_rl_loss.py": PRIME_RL,
    "ms_swift_reward.py": MS_SWIFT,
    "easyr1_reward.py": EASYR1,
    "openrlhf_reward.py": OPENRLHF,
}


def load(name: str, *, known_as: str = "") -> ModuleType:
    """Run an example's file as the trainers do, by its path."""
    spec = importlib.util.spec_from_file_location(known_as or name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    if known_as:
        sys.modules[known_as] = module
    spec.loader.exec_module(module)
    return module


def swift_rewards() -> dict[str, ModuleType]:
    """Build `swift.rewards` with the two names that a plug-in imports, for `sys.modules`."""

    class ORM:
        def __init__(self, args: Any = None, **kwargs: Any) -> None:
            self.args = args

    package, rewards = ModuleType("swift"), ModuleType("swift.rewards")
    rewards.ORM, rewards.orms = ORM, {}
    package.rewards = rewards
    return {"swift": package, "swift.rewards": rewards}


def record_gradients(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Fill a list with the gradient that each step of AdamW takes: the sum of its magnitudes."""
    gradients: list[float] = []
    step = torch.optim.AdamW.step

    def recorded(self: torch.optim.AdamW, *arguments: Any, **options: Any) -> Any:
        out = step(self, *arguments, **options)
        parameters = [p for group in self.param_groups for p in group["params"]]
        gradients.append(sum(float(p.grad.abs().sum()) for p in parameters if p.grad is not None))
        return out

    monkeypatch.setattr(torch.optim.AdamW, "step", recorded)
    return gradients
