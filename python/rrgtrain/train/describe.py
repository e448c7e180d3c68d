"""A batch as plain data, kept for `rrgtrain replay` when its numbers are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import Group, competing
from rrgtrain.algorithms.objective import Objective
from rrgtrain.data.study import Study
from rrgtrain.policy.policy import Policy
from rrgtrain.train.target import PLAIN, target_text


def describe_groups(
    groups: list[Group],
    rewards: torch.Tensor | None = None,
    advantages: torch.Tensor | Objective | None = None,
) -> dict[str, Any]:
    """The members of all groups in their order; where they are known already, the rewards of those
    that compete and advantages [S] or [N]."""
    known = {} if rewards is None else {"rewards": rewards[competing(groups)]}
    if advantages is not None:
        known["advantages"] = as_objective(advantages).advantages
    return {
        **known,
        "members": [
            {"study": group.study.id, "ids": m.ids, "origin": m.origin}
            for group in groups
            for m in group.members
        ],
    }


def describe_references(
    policy: Policy, studies: Sequence[Study], template: str = PLAIN
) -> dict[str, Any]:
    """The references that fine-tuning learns from."""
    return {
        "members": [
            {
                "study": s.id,
                "ids": policy.codec.encode(target_text(s, template)),
                "origin": "reference",
            }
            for s in studies
        ]
    }
