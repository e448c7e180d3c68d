"""Select the rows that are computed at all: the compaction before the forward.

A row is a scored token's hidden state. Masked rows are never computed. Rows that no gradient can
reach are computed only where something that is returned depends on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.policy_loss.inputs import PolicyInputs
from rrgkern.segments import sequence_of_token, sum_per_sequence


class RowSelection(NamedTuple):
    """Ascending row numbers.

    Rows `with_grad` may get a gradient, None standing for all rows of the batch; `values_only`
    are computed for their values.
    """

    with_grad: Tensor | None
    values_only: Tensor

    def gather(self, values: Tensor) -> Tensor:
        """`values` [N, ...] at the rows with gradient."""
        return values if self.with_grad is None else values.index_select(0, self.with_grad)


def rows_with_gradient(policy: PolicyInputs, n_rows: int) -> Tensor | None:
    """[N] bool: False where the gradient is 0 whatever the log-probabilities are; None: nowhere.

    Without advantage, weight or scale a token has no gradient, unless a KL or entropy term gives
    it one. Where a variant ties the tokens of a sequence, one of them keeps all of them.
    """
    spec = policy.variant
    if spec.beta or spec.entropy_coef:
        return policy.mask
    sequences = policy.offsets.numel() - 1
    sequence = sequence_of_token(policy.offsets, n_rows)

    def nonzero(values: Tensor, per_token: bool) -> Tensor:
        return (values if per_token else values[sequence]) != 0

    rows = nonzero(policy.advantages, policy.advantage_per_token)
    rows &= nonzero(policy.scale, policy.scale_per_token)
    if policy.token_weight is not None:
        rows &= policy.token_weight != 0
    if policy.mask is not None:
        rows &= policy.mask
    if policy.ties_tokens:
        rows = (sum_per_sequence(rows, sequence, sequences) > 0)[sequence]
        if policy.mask is not None:
            rows &= policy.mask
    return rows


def select(
    scored: Tensor | None, with_grad: Tensor | None, n_rows: int, values_only: bool
) -> RowSelection:
    """Row numbers of `with_grad` and, where `values_only` is asked for, of the other scored rows.

    The sizes of the products must be known on the host: on CUDA this waits for the device, once.
    """
    like = scored if with_grad is None else with_grad
    if like is None:
        return RowSelection(None, torch.empty(0, dtype=torch.int64))
    others = torch.zeros_like(like)
    if values_only:
        others = ~like if scored is None else scored & ~like
    # One sort and one read give both lists.
    counts = torch.stack([like.sum(), others.sum()]).tolist()
    if counts[0] == n_rows:
        return RowSelection(None, like.new_empty(0, dtype=torch.int64))
    order = torch.where(like, 0, torch.where(others, 1, 2)).argsort(stable=True)
    return RowSelection(order[: counts[0]], order[counts[0] : counts[0] + counts[1]])


def policy_at(policy: PolicyInputs, rows: Tensor | None) -> PolicyInputs:
    """The batch of the scored rows `rows`, ascending; None: the batch itself."""
    if rows is None:
        return policy
    offsets = torch.searchsorted(rows, policy.offsets)
    return policy._replace(**_token_parts(policy, rows) | {"offsets": offsets, "mask": None})


def policy_of_block(policy: PolicyInputs, rows: slice) -> PolicyInputs:
    """A run of rows, which may begin and end inside a sequence; token-level variants only."""
    offsets = policy.offsets.clamp(rows.start, rows.stop) - rows.start
    return policy._replace(**_token_parts(policy, rows) | {"offsets": offsets})


def _token_parts(policy: PolicyInputs, rows: Tensor | slice) -> dict[str, Any]:
    names = ["old", "ref", "sampler", "token_weight", "mask"]
    names += ["advantages"] if policy.advantage_per_token else []
    names += ["scale"] if policy.scale_per_token else []
    parts: dict[str, Any] = {}
    for name in names:
        values = getattr(policy, name)
        parts[name] = None if values is None else values[rows].contiguous()
    return parts
