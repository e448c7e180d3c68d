"""Which rows are computed at all: the compaction before the forward.

A row is a scored token's hidden state. Masked rows are never computed. Rows that no gradient can
reach are computed only where something that is returned depends on them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.policy_loss.linear.policy import Policy
from rrgkern.segments import sequence_of_token, sum_per_sequence


class Rows(NamedTuple):
    """Ascending row numbers.

    `live` may get a gradient, None standing for all rows of the batch; `rest` are computed for
    their values only.
    """

    live: Tensor | None
    rest: Tensor

    def gather(self, values: Tensor) -> Tensor:
        """`values` [N, ...] at the live rows."""
        return values if self.live is None else values.index_select(0, self.live)


def reachable(policy: Policy, n_rows: int) -> Tensor | None:
    """[N] bool: False where the gradient is 0 whatever the log-probabilities are; None: nowhere.

    Without advantage, weight or scale a token has no gradient, unless a KL or entropy term gives
    it one. Where a variant ties the tokens of a sequence, one of them keeps all of them.
    """
    spec = policy.variant
    if spec.beta or spec.entropy_coef:
        return policy.mask
    sequences = policy.offsets.numel() - 1
    sequence = sequence_of_token(policy.offsets, n_rows)
    alive = policy.per_token(policy.advantages, policy.advantage_per_token, sequence) != 0
    alive &= policy.per_token(policy.scale, policy.scale_per_token, sequence) != 0
    if policy.weight is not None:
        alive &= policy.weight != 0
    if policy.mask is not None:
        alive &= policy.mask
    if policy.tied:
        alive = (sum_per_sequence(alive, sequence, sequences) > 0)[sequence]
        if policy.mask is not None:
            alive &= policy.mask
    return alive


def select(scored: Tensor | None, alive: Tensor | None, n_rows: int, rest: bool) -> Rows:
    """Row numbers of `alive` and, where `rest` is asked for, of the other scored rows.

    The sizes of the products must be known on the host: on CUDA this waits for the device, once.
    """
    like = scored if alive is None else alive
    if like is None:
        return Rows(None, torch.empty(0, dtype=torch.int64))
    none = like.new_empty(0, dtype=torch.int64)
    live = like if alive is None else alive
    others = torch.zeros_like(live)
    if rest:
        others = ~live if scored is None else scored & ~live
    # One sort and one read give both lists.
    counts = torch.stack([live.sum(), others.sum()]).tolist()
    if counts[0] == n_rows:
        return Rows(None, none)
    order = torch.where(live, 0, torch.where(others, 1, 2)).argsort(stable=True)
    return Rows(order[: counts[0]], order[counts[0] : counts[0] + counts[1]])
