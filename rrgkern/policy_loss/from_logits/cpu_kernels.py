"""Serve CPUs: the chunked forward and backward of `token_logps` around the policy loss.

Nothing of the size of the logits is held beside the gradient, and rows without part in the loss are
not read.
"""

from __future__ import annotations

from torch import Tensor

from rrgkern.logps import cpu_from_logits
from rrgkern.logps.online_softmax import Coefficients
from rrgkern.ops import flatten
from rrgkern.policy_loss.from_logits.reference import LogitsOutputs, is_active
from rrgkern.policy_loss.inputs import LogitsInputs, LogpsInputs
from rrgkern.policy_loss.reference import policy_loss_reference


def loss_and_gradient(call: LogitsInputs, gradient: str) -> LogitsOutputs:
    """As `from_logits_reference`, for logits [N, V] or [B, L, V].

    Args:
        call: the arguments.
        gradient: "new"; "inplace", the logits are overwritten and returned; "none", size 0.
    """
    logits, targets, policy, temperature, with_entropy = call
    stats = cpu_from_logits.forward(logits, targets, temperature, with_entropy, policy.mask)
    entropy = stats.entropy if with_entropy else None
    loss, coef, coef_entropy, metrics = policy_loss_reference(
        *flatten(LogpsInputs(stats.logps, entropy, policy))
    )
    bonus = coef_entropy if coef_entropy.numel() else None
    active = is_active(coef, bonus)
    if gradient == "none":
        return LogitsOutputs(loss, logits.new_empty(0), active, metrics)
    written = cpu_from_logits.backward(
        *(Coefficients(coef, bonus), logits, targets, stats, temperature),
        inplace=gradient == "inplace",
    )
    return LogitsOutputs(loss, written, active, metrics)


def scale_rows(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    """Multiply the active rows by `factor` 0-d; where it is 1 nothing is touched."""
    if factor == 1:
        return
    batches = gradient if gradient.ndim == 3 else gradient[None]
    for batch, rows in zip(batches, active.view(batches.shape[:2]), strict=True):
        for row in rows.nonzero().flatten().tolist():
            batch[row] = (batch[row].to(factor.dtype) * factor).to(batch.dtype)
