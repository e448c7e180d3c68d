"""A whole training by reinforcement in milliseconds: rewards without models, given validations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import torch

from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import Algorithm, build_algorithm
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService, Spending
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl import train_rl
from rrgtrain.train.rl_run import RlResult
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import rl_run, studies


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
