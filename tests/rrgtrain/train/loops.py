"""A whole training by reinforcement in milliseconds, and policies with masters in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import sharding
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import Algorithm, Group, build_algorithm
from rrgtrain.algorithms.base import loss_of
from rrgtrain.algorithms.group import members
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService, Spending
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl import train_rl
from rrgtrain.train.rl_run import RlResult
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgtrain.common import accumulate, groups_of, recipe, rl_run, studies


class Plain(RewardService):
    """A reward that reads no reference and keeps no count."""

    def __init__(self) -> None:
        self.spending = Spending(None)

    def prefetch(self, references: Sequence[Study | str]) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def statistics(self) -> dict[str, float]:
        return {}


class Length(Plain):
    """A reward that differs between members whatever an untrained policy writes."""

    def __call__(self, reports: Sequence[str], *_: object) -> dict[str, np.ndarray]:
        value = np.array([(len(r) % 7) / 7 for r in reports], dtype=np.float64)
        return {"total": 2 * value, "length": value}


class Flat(Plain):
    """A reward that says nothing."""

    def __call__(self, reports: Sequence[str], *_: object) -> dict[str, np.ndarray]:
        return {"total": np.full(len(reports), 0.25)}


def trained(
    out: Path,
    cfg: Recipe,
    *,
    scores: Sequence[float] = (0.5,) * 9,
    rewards: object = None,
    given: Sequence[Study] | None = None,
    policy: Policy | None = None,
    algorithm: Algorithm | None = None,
    **options: object,
) -> tuple[RlResult, Policy, list[dict], list[dict[str, torch.Tensor]]]:
    policy = policy or tiny_policy()
    seen: list[dict[str, torch.Tensor]] = []

    def validate() -> dict[str, float]:
        seen.append({n: p.detach().clone() for n, p in policy.model.named_parameters()})
        score = scores[len(seen) - 1]
        return {"micro_f1_13": score, "micro_f1": 1.0 - score, "reward": -2.0 - score}

    with RunDir.create(out) as run, RunLog(run) as log:
        run_ = rl_run(
            policy,
            PromptLoader(policy, "short"),
            given or studies(5),
            cfg,
            algorithm or build_algorithm(cfg),
            rewards or RewardService(cfg.reward),  # type: ignore[arg-type]
            validate,
            run.checkpoints / "rl",
            log,
            **options,  # type: ignore[arg-type]
        )
        result = train_rl(run_)
    return result, policy, read_metrics(run.metrics), seen


def state(policy: Policy) -> dict[str, torch.Tensor]:
    return dict(policy.model.named_parameters())


# the second group has an image
SAMPLED = ((REPORTS[0], REPORTS[1], REPORTS[2]), (REPORTS[3], REPORTS[0]))


def with_masters(dtype: torch.dtype = torch.bfloat16, **options: Any) -> Policy:
    """A tiny policy that computes in `dtype`."""
    policy = tiny_policy(dtype=dtype, masters=True, **options)
    sharding.setup("none", policy)
    return policy


def whole(policy: Policy) -> dict[str, torch.Tensor]:
    """Its masters by name."""
    found = sharding.full_state_dict(dict(policy.model.named_parameters()))
    return {name: value.detach().clone() for name, value in found.items()}


def whole_gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """The gradients that stand in its masters."""
    named = policy.model.named_parameters()
    return sharding.full_state_dict({n: p.grad for n, p in named if p.grad is not None})


def backward(policy: Policy, *overrides: str, groups: list[Group] | None = None) -> None:
    """Real gradients, from a packed forward; by default of groups with and without images."""
    groups = groups or groups_of(policy, SAMPLED, edited=False)
    advantages = torch.linspace(-1.0, 1.0, len(members(groups)))
    cfg = recipe(*overrides)
    accumulate(policy, None, groups, advantages, loss_of(cfg.rl, cfg.rollout), cfg.rl)
