"""Write a batch as plain data, for `rrgtrain replay` when its numbers are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rrgdata.study import Study
from rrgtrain.algorithms.group import Group
from rrgtrain.policy.policy import Policy
from rrgtrain.train.batch import Batch
from rrgtrain.train.target_text import PLAIN, target_text


def describe_groups(groups: list[Group], batch: Batch | None = None) -> dict[str, Any]:
    """Describe the members of all groups in their order.

    With the batch that they are, also the rewards of those that are scored, and advantages [S] or
    [N]."""
    known = {}
    if batch is not None:
        known["rewards"] = batch.rewards[batch.scored]
        known["advantages"] = batch.objective.advantages
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
