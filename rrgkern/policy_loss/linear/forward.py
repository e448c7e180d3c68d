"""The forward of each mode, from the rows that are computed to the loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.head import Head, NeedsGrad, tiled_forward
from rrgkern.logps.online_softmax import SoftmaxStats
from rrgkern.policy_loss.linear import frozen
from rrgkern.policy_loss.linear import gradients as in_forward
from rrgkern.policy_loss.linear.plan import Plan
from rrgkern.policy_loss.linear.policy import Policy
from rrgkern.policy_loss.linear.rows import Rows, reachable, select


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


def forward(
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    policy: Policy,
    mode: str,
    wanted: NeedsGrad,
    entropy: bool,
    all_metrics: bool,
    plan: Plan,
) -> Forward:
    """One of the modes of `modes.MODES` on hidden [N, H] and targets [N]."""
    rows_given = len(hidden)
    alive = reachable(policy, rows_given)
    # Of a row without gradient only the metrics know: its ratio is 1 where there is no `old`.
    seen = policy.old is not None or policy.ref is not None or entropy
    left_out = not (all_metrics and seen)
    if mode == "recompute":
        rows = select(policy.mask, alive if left_out else policy.mask, rows_given, rest=False)
    else:
        rows = select(policy.mask, alive, rows_given, rest=not left_out)
    gradients = [hidden.new_empty(0) for _ in range(3)]
    live_hidden = hidden if mode == "grad_in_forward" else rows.gather(hidden)
    live_targets = rows.gather(targets)
    if mode == "recompute":
        stats = tiled_forward(live_hidden, live_targets, head, entropy, plan.tiles)
    elif mode == "frozen_head":
        found = frozen.directions(live_hidden, live_targets, head, entropy, plan)
        stats = found.stats
    else:
        done = in_forward.gradients(hidden, targets, head, policy, rows, wanted, entropy, plan)
        stats, gradients = done.stats, list(done[1:])

    everywhere = _spread(stats, rows.live, rows_given, entropy)
    if len(rows.rest):
        rest = tiled_forward(hidden[rows.rest], targets[rows.rest], head, entropy, plan.tiles)
        for whole, part in zip(everywhere, rest, strict=True):
            if len(part):
                whole.index_copy_(0, rows.rest, part)
    if not all_metrics:
        policy = policy._replace(mask=_computed(rows, policy, rows_given))
    loss, coef, coef_entropy, metrics = policy.loss(
        everywhere.logps, everywhere.entropy if entropy else None
    )
    if mode == "recompute":
        return Forward(loss, metrics, coef, coef_entropy, *everywhere, *gradients)
    if mode == "frozen_head":
        gradients[0] = _hidden_gradient(found, rows, live_targets, head, coef, hidden, plan)
    nothing = [loss.new_empty(0) for _ in range(6)]
    return Forward(loss, metrics, *nothing, *gradients)


def _spread(stats: SoftmaxStats, live: Tensor | None, rows: int, entropy: bool) -> SoftmaxStats:
    """Statistics of the live rows among all of them, 0 elsewhere; no entropy stays size 0."""
    if live is None:
        return stats
    whole = {
        name: part.new_zeros(rows).index_copy_(0, live, part)
        for name, part in stats._asdict().items()
        if name != "entropy" or entropy
    }
    return stats._replace(**whole)


def _computed(rows: Rows, policy: Policy, count: int) -> Tensor | None:
    """[N] bool, the rows whose log-probabilities are known."""
    if rows.live is None:
        return policy.mask
    known = torch.zeros(count, dtype=torch.bool, device=policy.offsets.device)
    return known.index_fill_(0, rows.live, True).index_fill_(0, rows.rest, True)


def _hidden_gradient(
    found: frozen.Directions,
    rows: Rows,
    targets: Tensor,
    head: Head,
    coef: Tensor,
    hidden: Tensor,
    plan: Plan,
) -> Tensor:
    """[N, H] in `gradient_dtype`, 0 at rows that are not live."""
    total, dtype = found.total, gradient_dtype(hidden.dtype)
    out = total if total.dtype == dtype else torch.empty_like(total, dtype=dtype)
    if len(total):
        plan.rows.direction(total, found.sums, found.stats, targets, head, rows.gather(coef), out)
    if rows.live is None:
        return out
    return out.new_zeros(hidden.shape).index_copy_(0, rows.live, out)


def gradient_dtype(dtype: torch.dtype) -> torch.dtype:
    """What frozen_head keeps its gradient in until the backward: fp32 for fp16.

    fp16 gradients live by a loss scale, which comes with the backward: before it they may be less
    than the least fp16 number.
    """
    return torch.float32 if dtype == torch.float16 else dtype
