"""Rewards as TRL calls them: `GRPOTrainer(reward_funcs=trl_reward(service), ...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rrgclinical.common.arguments import completion_text, listed, share_of_state
from rrgtrain.rewards.service import RewardService, refuse_left_out


def trl_reward(
    service: RewardService, *, column: str = "report", name: str = "rrgtrain"
) -> Callable[..., list[float]]:
    """The weighted total as one reward function of TRL (1.x).

    TRL passes every dataset column by name, one value per completion; `column` holds the
    reference report. Completions may be texts or conversations. The terms are logged by TRL's
    `log_metric` where it offers that, and `reward.starts` follows `trainer_state`. A reward that
    fails raises and stops the trainer: None, TRL's way to leave a sample out, is never returned.
    """
    if isinstance(service, RewardService):  # a client's server has refused by itself
        refuse_left_out(service.settings, "TRL")

    def reward(completions: Sequence[Any], **columns: Any) -> list[float]:
        if column not in columns:
            lists = sorted(k for k, v in columns.items() if isinstance(v, list))
            have = ", ".join(lists) or "none"
            raise ValueError(f"the dataset has no column {column!r}, it has {have}; pass column=")
        scores = service(
            [completion_text(one) for one in listed(completions, "completions", "completions")],
            columns[column],
            share_of_state(columns.get("trainer_state")),
        )
        log = columns.get("log_metric")
        if log is not None:
            for term, value in scores.items():
                if term != "total" and len(value):
                    log(f"{name}/{term}", float(value.mean()))
        return scores["total"].tolist()

    # TRL names its log rows after the function.
    reward.__name__ = name
    return reward
