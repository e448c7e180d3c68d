"""Hold the arguments of the loss from hidden states in one record."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rrgkern.logps.head import NeedsGrad
from rrgkern.logps.inputs import FromHidden
from rrgkern.policy_loss.inputs import PolicyInputs


class LinearInputs(NamedTuple):
    """The arguments of `rrgkern::linear_policy_loss_fwd`, shapes as in `linear_policy_loss`."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    policy: PolicyInputs
    temperature: float
    softcap: float  # 0 for none
    mode: str
    want_hidden: bool
    want_weight: bool
    want_bias: bool
    entropy: bool
    all_metrics: bool  # of all scored rows, not only of those that are computed anyway

    @property
    def rows(self) -> FromHidden:
        """The same rows and head, as the log-probabilities take them."""
        return FromHidden(
            *(self.hidden, self.weight, self.bias, self.targets),
            *(self.temperature, self.softcap, self.entropy),
        )

    @property
    def needs_grad(self) -> NeedsGrad:
        """The inputs whose gradients are wanted."""
        return NeedsGrad(self.want_hidden, self.want_weight, self.want_bias)
