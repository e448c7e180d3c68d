"""GRPO and Dr. GRPO: every member is sampled.

They differ only in what a recipe says: GRPO divides by the group's standard deviation and
averages per sequence (`std=sample`, `aggregation=grpo`); Dr. GRPO (Liu et al., 2025) does
neither (`std=none`, `aggregation=dr_grpo`).
"""

from __future__ import annotations

from rrgtrain.algorithms.base import Algorithm, centred, loss_of, nothing_to_add
from rrgtrain.schema import Recipe


def build(recipe: Recipe) -> Algorithm:
    """GRPO as the section `rl` describes it."""
    return Algorithm(
        name=recipe.rl.algorithm,
        sampled=recipe.rl.group,
        complete=nothing_to_add,
        advantages=centred(recipe.rl.std),
        loss=loss_of(recipe),
    )
