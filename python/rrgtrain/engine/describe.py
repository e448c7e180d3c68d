"""A batch as plain data, kept for `rrgtrain replay` when its numbers are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import Group
from rrgtrain.algorithms.objective import Objective
from rrgtrain.data.study import Study
from rrgtrain.policy.policy import Policy


def describe_groups(
    groups: list[Group], rewards: torch.Tensor, advantages: torch.Tensor | Objective
) -> dict[str, Any]:
    """The members of all groups in their order, rewards [S], and advantages [S] or [N]."""
    return {
        "rewards": rewards,
        "advantages": as_objective(advantages).advantages,
        "members": [
            {"study": group.study.id, "ids": m.ids, "origin": m.origin}
            for group in groups
            for m in group.members
        ],
    }


def describe_references(policy: Policy, studies: Sequence[Study]) -> dict[str, Any]:
    """The references that fine-tuning learns from."""
    return {
        "members": [
            {"study": s.id, "ids": policy.codec.encode(s.report or ""), "origin": "reference"}
            for s in studies
        ]
    }
