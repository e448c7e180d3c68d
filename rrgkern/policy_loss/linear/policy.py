"""The policy loss as a function of the log-probabilities alone, whole or for some of the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.policy_loss.op import policy_loss_fwd
from rrgkern.policy_loss.spec import PolicyLoss


def ties_tokens(spec: PolicyLoss, sampler: bool) -> bool:
    """Whether a token's coefficient depends on the other tokens of its sequence."""
    per_sequence = spec.ratio_level != "token" or spec.surrogate == "vespo"
    return per_sequence or (sampler and spec.sampler_level == "sequence")


class Policy(NamedTuple):
    """The arguments of `policy_loss_fwd` other than log-probabilities and entropies."""

    advantages: Tensor
    offsets: Tensor
    scale: Tensor
    old: Tensor | None
    ref: Tensor | None
    sampler: Tensor | None
    weight: Tensor | None
    on_policy: Tensor | None
    mask: Tensor | None
    advantage_per_token: bool
    scale_per_token: bool
    spec: str

    @property
    def variant(self) -> PolicyLoss:
        """The variant that `spec` encodes."""
        return PolicyLoss.decode(self.spec)

    @property
    def tied(self) -> bool:
        """See `ties_tokens`."""
        return ties_tokens(self.variant, self.sampler is not None)

    @staticmethod
    def per_token(values: Tensor, already: bool, sequence: Tensor) -> Tensor:
        """[N] from [S] or [N]."""
        return values if already else values[sequence]

    def arguments(self, logps: Tensor, entropy: Tensor | None) -> tuple[Any, ...]:
        """What `policy_loss_fwd` takes, in its order."""
        return (
            *(logps, self.advantages, self.offsets, self.scale, self.old, self.ref, self.sampler),
            *(self.weight, entropy, self.on_policy, self.mask),
            *(self.advantage_per_token, self.scale_per_token, self.spec),
        )

    def loss(self, logps: Tensor, entropy: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Loss, coef, coef_entropy (or size 0) and metrics."""
        entropy = None if entropy is None else entropy.contiguous()
        return policy_loss_fwd(*self.arguments(logps.contiguous(), entropy))

    def at(self, rows: Tensor | None) -> Policy:
        """The batch of the scored rows `rows`, ascending; None: the batch itself."""
        if rows is None:
            return self
        offsets = torch.searchsorted(rows, self.offsets)
        return self._replace(**self._token_parts(rows) | {"offsets": offsets, "mask": None})

    def block(self, rows: slice) -> Policy:
        """A run of rows, which may begin and end inside a sequence; token-level variants only."""
        offsets = self.offsets.clamp(rows.start, rows.stop) - rows.start
        return self._replace(**self._token_parts(rows) | {"offsets": offsets})

    def _token_parts(self, rows: Tensor | slice) -> dict[str, Any]:
        names = ["old", "ref", "sampler", "weight", "mask"]
        names += ["advantages"] if self.advantage_per_token else []
        names += ["scale"] if self.scale_per_token else []
        parts: dict[str, Any] = {}
        for name in names:
            values = getattr(self, name)
            parts[name] = None if values is None else values[rows].contiguous()
        return parts
