"""`linear_token_logps`: the head and its log-probabilities without the logits in memory."""

from __future__ import annotations

from torch import Tensor

from rrgkern.checks import check_tensors
from rrgkern.linear_token_logps.checks import check_head
from rrgkern.linear_token_logps.op import linear_token_logps_fwd
from rrgkern.token_logps.result import TokenLogps


def linear_token_logps(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    entropy: bool = False,
) -> TokenLogps:
    """log softmax(z / T)[target] of the head z = cap(hidden W^T + bias), [N, V] never in memory.

    Args:
        hidden: [..., H], fp16, bf16, fp32 or fp64; the states that predict the targets.
        weight: [V, H], the dtype and device of `hidden`. Its gradient is skipped when it does
            not require one. A DTensor (FSDP2) is gathered, and its gradient averaged over ranks.
        targets: [...] int64, each in [0, V). Ignored tokens (-100) are left out by the caller:
            a row that is not passed costs nothing.
        bias: [V] or None, the dtype of `hidden`.
        temperature: T > 0, a run-time value.
        softcap: cap(z) = softcap * tanh(z / softcap), before the temperature; None for none.
        entropy: also return the entropy of each distribution, differentiable like `logps`.

    Returns:
        `TokenLogps(logps, entropy)` in nats, of the shape of `targets`; fp32, fp64 for fp64
        inputs. Each logp is exact when the softmax has collapsed on its target.

    In the backward a row whose incoming gradients (of logps and of entropy) are both 0 is left
    out of every product; gradients are summed in fp32 across tiles and rounded once.

    Raises:
        TypeError: a dtype that is not served, or dtypes that differ.
        ValueError: shapes that do not fit, devices that differ, a temperature or softcap that is
            not positive.
        IndexError: a target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
    """
    check_tensors(hidden=hidden, weight=weight, targets=targets, optional={"bias": bias})
    weight, bias = check_head(hidden, weight, targets, bias, temperature, softcap)
    logps, entropies, _, _ = linear_token_logps_fwd(
        hidden.reshape(-1, hidden.shape[-1]),
        weight,
        bias,
        targets.reshape(-1),
        float(temperature),
        float(softcap or 0.0),
        entropy,
    )
    shape = targets.shape
    return TokenLogps(logps.view(shape), entropies.view(shape) if entropy else entropies)
