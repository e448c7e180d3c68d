"""Run the forward of each mode, from the rows that are computed to the loss.

    hidden [N, H] --select--> [R, H] with gradient ---+--> recompute: tiled_forward, 1 product
                      |                               +--> frozen_head: directions, 2 products
                      |                               +--> grad_in_forward: 3 products
                      +--> values_only rows: tiled_forward, for metrics   |
                                                                          v
    statistics of all rows [N] --loss_of_logps--> loss, metrics, coef = dloss/dlogp [N]

What is left for the backward: recompute keeps the statistics and coef and makes 3 more products;
frozen_head has multiplied each row's direction, dlogp/dhidden, by its coef; grad_in_forward has
taken coef block by block, so both only scale what they hold. A product is R x H x V.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.head import Head, tiled_forward
from rrgkern.policy_loss.inputs import PolicyInputs
from rrgkern.policy_loss.linear.gradients import Directions, Plan, directions, gradients_in_forward
from rrgkern.policy_loss.linear.inputs import LinearInputs
from rrgkern.policy_loss.linear.rows import RowSelection, rows_with_gradient, select
from rrgkern.policy_loss.op import loss_of_logps


class Forward(NamedTuple):
    """Loss, metrics, and what the backward of the mode needs; the others have size 0.

    Per-row tensors are [N], 0 at rows that were not computed. Gradients are those of the loss, to
    be multiplied by the gradient that comes from above.
    """

    loss: Tensor
    metrics: Tensor
    coef: Tensor
    coef_entropy: Tensor
    logps: Tensor
    entropy: Tensor
    shift: Tensor
    lognorm: Tensor
    d_hidden: Tensor
    d_weight: Tensor
    d_bias: Tensor

    @property
    def per_row(self) -> tuple[Tensor, ...]:
        """Coefficients and statistics, saved by "recompute"."""
        stats = (self.logps, self.entropy, self.shift, self.lognorm)
        return self.coef, self.coef_entropy, *stats

    @property
    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of hidden, weight and bias, saved by the other modes."""
        return self.d_hidden, self.d_weight, self.d_bias


def forward(call: LinearInputs, head: Head, plan: Plan) -> Forward:
    """One of the modes of `api.MODES`."""
    hidden, targets, policy, entropy = call.hidden, call.targets, call.policy, call.entropy
    n_rows = len(hidden)
    with_grad = rows_with_gradient(policy, n_rows)
    # Rows without gradient count in the metrics alone. Without old, ref and entropy these need no
    # log-probability: every ratio is 1.
    measured = policy.old is not None or policy.ref is not None or entropy
    left_out = not (call.all_metrics and measured)
    if call.mode == "recompute":
        computed = with_grad if left_out else policy.mask
        rows = select(policy.mask, computed, n_rows, values_only=False)
    else:
        rows = select(policy.mask, with_grad, n_rows, values_only=not left_out)
    d_hidden, d_weight, d_bias = (hidden.new_empty(0) for _ in range(3))
    if call.mode == "recompute":
        stats = tiled_forward(rows.gather(hidden), rows.gather(targets), head, entropy, plan.tiles)
    elif call.mode == "frozen_head":
        found = directions(rows.gather(hidden), rows.gather(targets), head, entropy, plan)
        stats = found.stats
    else:
        stats, d_hidden, d_weight, d_bias = gradients_in_forward(call, head, rows, plan)

    of_all_rows = stats
    if rows.with_grad is not None:
        of_all_rows = stats.scattered(rows.with_grad, n_rows, entropy)
    if len(rows.values_only):
        values = tiled_forward(
            hidden[rows.values_only], targets[rows.values_only], head, entropy, plan.tiles
        )
        for whole, part in zip(of_all_rows, values, strict=True):
            if len(part):
                whole.index_copy_(0, rows.values_only, part)
    if not call.all_metrics:
        policy = policy._replace(mask=_computed(rows, policy, n_rows))
    loss, coef, coef_entropy, metrics = loss_of_logps(
        of_all_rows.logps.contiguous(),
        of_all_rows.entropy.contiguous() if entropy else None,
        policy,
    )
    if call.mode == "recompute":
        per_row = [coef, coef_entropy, *of_all_rows]
    else:
        per_row = [loss.new_empty(0) for _ in range(6)]
    if call.mode == "frozen_head":
        d_hidden = _hidden_gradient(found, call, head, rows, coef, plan)
    return Forward(loss, metrics, *[*per_row, d_hidden, d_weight, d_bias])


def _computed(rows: RowSelection, policy: PolicyInputs, n_rows: int) -> Tensor | None:
    """[N] bool, the rows whose log-probabilities are known."""
    if rows.with_grad is None:
        return policy.mask
    known = torch.zeros(n_rows, dtype=torch.bool, device=policy.offsets.device)
    return known.index_fill_(0, rows.with_grad, True).index_fill_(0, rows.values_only, True)


def _hidden_gradient(
    found: Directions, call: LinearInputs, head: Head, rows: RowSelection, coef: Tensor, plan: Plan
) -> Tensor:
    """[N, H] in `gradient_dtype`, 0 at rows without gradient."""
    total, dtype = found.total, gradient_dtype(call.hidden.dtype)
    out = total if total.dtype == dtype else torch.empty_like(total, dtype=dtype)
    if len(total):
        plan.rows.direction(found, rows.gather(call.targets), head, rows.gather(coef), out)
    if rows.with_grad is None:
        return out
    return out.new_zeros(call.hidden.shape).index_copy_(0, rows.with_grad, out)


def gradient_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which frozen_head keeps its gradient until the backward: fp32 for fp16.

    fp16 gradients live by a loss scale, which comes with the backward: before it they may be less
    than the least fp16 number.
    """
    return torch.float32 if dtype == torch.float16 else dtype
