"""Rewards as TRL calls them: `GRPOTrainer(reward_funcs=trl_reward(service), ...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rrgtrain.rewards.service import RewardService


def trl_reward(
    service: RewardService, *, column: str = "report", name: str = "rrgtrain"
) -> Callable[..., list[float]]:
    """The weighted total as one reward function of TRL (1.x).

    TRL passes every dataset column by name, one value per completion; `column` holds the
    reference report. Completions may be texts or conversations. The terms are logged by TRL's
    `log_metric` where it offers that, and `reward.starts` follows `trainer_state`. A reward that
    fails raises and stops the trainer: None, TRL's way to leave a sample out, is never returned.
    """

    def reward(completions: Sequence[Any], **columns: Any) -> list[float]:
        if column not in columns:
            have = ", ".join(sorted(k for k, v in columns.items() if isinstance(v, list)))
            raise ValueError(f"the dataset has no column {column!r}, it has {have}; pass column=")
        scores = service(
            [completion_text(completion) for completion in completions],
            columns[column],
            _progress(columns.get("trainer_state")),
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


def completion_text(completion: Any) -> str:
    """Return the text of a completion.

    A str is its own; the messages of a conversation are joined.

    A part of a message that is no text, such as an image, adds nothing; a message whose content is
    None is empty, as one that calls a tool. Raises TypeError for anything else.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list):
        return "\n".join(_content(message) for message in completion)
    raise TypeError(
        f"a completion is {type(completion).__name__}; wanted text or a list of messages"
    )


def _content(message: Any) -> str:
    if not isinstance(message, dict) or "content" not in message:
        raise TypeError(f"a message is {message!r:.80}; wanted a dict with role and content")
    content = message["content"]
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TypeError(f"a message's content is {content!r:.80}; wanted text or a list of parts")
    return "".join(part.get("text", "") for part in content if part.get("type") == "text")


def _progress(state: Any) -> float:
    steps = getattr(state, "max_steps", 0) or 0
    return min(1.0, state.global_step / steps) if steps > 0 else 1.0
