"""Evaluation: greedy reports, their labels against the references', and their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rrgtrain.clinical.metrics import label_report
from rrgtrain.data.study import Study
from rrgtrain.engine.encode import PromptCache
from rrgtrain.engine.progress import progress
from rrgtrain.policy.policy import Policy
from rrgtrain.rewards import RewardService
from rrgtrain.rollout import generate


@dataclass(frozen=True)
class Evaluation:
    """What a policy wrote for R studies, and how it compares.

    `predicted` and `truth` are [R, 14] class ids; `rewards` maps terms to [R] arrays, `notes` to
    what a term kept of each report (FactS: facts and verdicts).
    """

    studies: list[Study]
    reports: list[str]
    predicted: np.ndarray
    truth: np.ndarray
    rewards: dict[str, np.ndarray]
    notes: dict[str, list[Any]] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the studies stay with the data."""
        return {
            "reports": list(self.reports),
            "predicted": torch.as_tensor(self.predicted),
            "truth": torch.as_tensor(self.truth),
            "rewards": {name: torch.as_tensor(value) for name, value in self.rewards.items()},
            "notes": {name: list(notes) for name, notes in self.notes.items()},
        }

    @classmethod
    def from_state(cls, studies: Sequence[Study], state: dict[str, Any]) -> Evaluation:
        """What `state_dict` gave, for the same studies."""
        return cls(
            list(studies),
            state["reports"],
            state["predicted"].numpy(),
            state["truth"].numpy(),
            {name: value.numpy() for name, value in state["rewards"].items()},
            state.get("notes", {}),
        )

    def metrics(self) -> dict[str, float]:
        values = dict(label_report(self.predicted, self.truth))
        values["reward"] = float(self.rewards["total"].mean())
        values.update(
            {f"reward/{k}": float(v.mean()) for k, v in self.rewards.items() if k != "total"}
        )
        values["words"] = float(np.mean([len(r.split()) for r in self.reports]))
        return values


def write_reports(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    *,
    batch: int,
    max_new_tokens: int,
    description: str | None = None,
) -> list[str]:
    """One greedy report per study, in their order."""
    chunks = [studies[i : i + batch] for i in range(0, len(studies), batch)]
    reports: list[str] = []
    was_training = policy.model.training
    policy.model.eval()
    for chunk in progress(chunks, description) if description else chunks:
        encoded = [prompts(study) for study in chunk]
        with torch.no_grad():
            rollouts = generate(
                policy,
                encoded,
                group=1,
                temperature=1.0,
                max_new_tokens=max_new_tokens,
                seeds=[[0]] * len(encoded),
                greedy=True,
            )
        reports.extend(policy.codec.decode(r[0].ids) for r in rollouts)
    policy.model.train(was_training)
    return reports


def evaluate(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    rewards: RewardService,
    *,
    batch: int,
    max_new_tokens: int,
    description: str | None = None,
) -> Evaluation:
    """Writes a report for each study and scores it."""
    reports = write_reports(
        policy,
        prompts,
        studies,
        batch=batch,
        max_new_tokens=max_new_tokens,
        description=description,
    )
    return score(reports, list(studies), rewards)


def score(reports: list[str], studies: list[Study], rewards: RewardService) -> Evaluation:
    """Labels and rewards of given reports.

    The truth is what the labeller reads in the references; where not every study has one, it is
    the studies' own labels.
    """
    values = rewards(reports, studies)
    predicted = rewards.labeller.label(rewards.scored_text(reports))
    if all(study.report is not None for study in studies):
        truth = rewards.labeller.label([study.report or "" for study in studies], keep=True)
    else:
        truth = np.asarray([study.labels for study in studies], dtype=np.int8)
    return Evaluation(studies, reports, predicted, truth, values, dict(values.notes))
