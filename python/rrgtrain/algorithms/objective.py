"""Define the objective: token-level advantages, and the other terms of the loss.

loss = Σ_b group_weight_b · policy loss of group b (advantages, weight, mask)
     + preference loss over `preference.pairs`
     + Σ_i likelihood_i · mean over the tokens of member i of -log π

Every term is a weighting of the same log-probabilities, so one packed forward serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rrgkern import PreferencePairs


@dataclass(frozen=True)
class Preference:
    """Name the members that are preferred to others; see `rrgkern.preference_loss`.

    A pair stays within its group. Its weight says how much it counts in the loss of the batch.
    """

    pairs: PreferencePairs
    tau: float = 1.0
    length_normalized: bool = True


@dataclass(frozen=True)
class Objective:
    """Hold one step's objective over S members with N tokens in B groups.

    All are in group order.

    advantages: [S] or [S, 1], one per member, or [N] or [1, N], one per token. Where S == N one
        axis is read as [S]. What stands at a member that is not scored is not read.
    weight: [N] factor of each token's advantage (DiTPO). None: 1.
    mask: [N] bool, False for a token of a scored member that the policy loss leaves out, also
        when it counts the length of the member. None: all take part.
    group_weight: [B] factor of each group's policy loss, KL included. None: 1.
    preference: adds its loss; needs a reference model.
    likelihood: [S] weight of each member's mean cross-entropy. None: 0.
    logs_gradient_ratio: compare ∂loss/∂logp of preference and likelihood with that of the policy
        loss, for the log.
    metrics: numbers for the log.
    """

    advantages: Tensor
    weight: Tensor | None = None
    mask: Tensor | None = None
    group_weight: Tensor | None = None
    preference: Preference | None = None
    likelihood: Tensor | None = None
    logs_gradient_ratio: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
