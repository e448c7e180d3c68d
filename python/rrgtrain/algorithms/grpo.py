"""GRPO and Dr. GRPO: every member is sampled. All other algorithms build on this one.

They differ only in what a recipe says: GRPO divides by the group's standard deviation and
averages per sequence (`std=sample`, `aggregation=grpo`); Dr. GRPO (Liu et al., 2025) does
neither (`std=none`, `aggregation=dr_grpo`). MRG-R1 is GRPO with `std=population` (its eq. 2) and
a clinical reward with a format.
"""

from __future__ import annotations

from rrgkern import PolicyLoss
from rrgtrain.algorithms.base import Algorithm, mean_centred, no_completion
from rrgtrain.algorithms.gdpo import decoupled
from rrgtrain.errors import UserError
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


def loss_of(rl: RlSettings, rollout: RolloutSettings) -> PolicyLoss:
    """The policy loss that the section `rl` describes; UserError where its options clash."""
    try:
        return PolicyLoss(
            surrogate=rl.surrogate,
            ratio_level=rl.ratio_level,
            eps_low=rl.eps_low,
            eps_high=rl.eps_high,
            kl=rl.kl,
            kl_ratio_weight=rl.kl_ratio_weight,
            beta=rl.beta,
            sampler_level=rollout.level,
            sampler_mode="mask" if rollout.correction == "mask" else "truncate",
            sampler_max=rollout.cap,
        )
    except ValueError as error:
        raise UserError(f"rl: {error}") from error
