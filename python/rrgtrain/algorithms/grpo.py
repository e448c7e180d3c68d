"""GRPO and Dr. GRPO: every member is sampled. All other algorithms build on this one.

They differ only in what a recipe says: GRPO divides by the group's standard deviation and
averages per sequence (`std=sample`, `aggregation=grpo`); Dr. GRPO (Liu et al., 2025) does
neither (`std=none`, `aggregation=dr_grpo`). MRG-R1 is GRPO with `std=population` (its eq. 2) and
a clinical reward with a format.
"""

from __future__ import annotations

from rrgtrain.algorithms.base import Algorithm, loss_of, mean_centred, no_completion
from rrgtrain.algorithms.gdpo import decoupled
from rrgtrain.schema import RewardSettings, RlSettings, RolloutSettings


def build(rl: RlSettings, reward: RewardSettings, rollout: RolloutSettings) -> Algorithm:
    """GRPO as the section `rl` describes it, its terms joined as `rl.combine` says."""
    sums = rl.combine == "sum"
    return Algorithm(
        name=rl.algorithm,
        sampled=rl.group,
        complete=no_completion,
        advantages=mean_centred(rl.std) if sums else decoupled(rl, reward),
        loss=loss_of(rl, rollout),
    )
