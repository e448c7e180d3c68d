"""`token_logps`: log-probabilities and entropy of tokens, from logits."""

from __future__ import annotations

from torch import Tensor

from rrgkern.checks import check_tensors
from rrgkern.token_logps.checks import check_logits
from rrgkern.token_logps.layout import as_rows
from rrgkern.token_logps.op import token_logps_fwd
from rrgkern.token_logps.result import TokenLogps


def token_logps(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, entropy: bool = False
) -> TokenLogps:
    """log softmax(logits / T)[target], and the entropy of the same softmax when asked.

    Args:
        logits: [..., V] fp16, bf16, fp32 or fp64, any strides. [N, V] and [B, L, V] are read where
            they lie, `logits[:, :-1]` too; other layouts that cannot be viewed so are copied.
        targets: [...] int64, each in [0, V). Ignored tokens (-100) are left out by the caller.
        temperature: T, 1e-30 to 1e30, a run-time value.
        entropy: also return the entropy, differentiable like `logps`.

    Returns:
        `TokenLogps(logps, entropy)` in nats, of the shape of `targets`; fp32, fp64 for fp64
        logits. A logp is exact when the softmax has collapsed on its target: the target stays
        out of the sum, logp = -softplus(logsumexp of the others - z_target).

    The gradient of the logits has their dtype. A row whose incoming gradients (of logps and of
    entropy) are both 0 is not read in the backward, and its gradient is 0 even where it is NaN.

    Raises:
        TypeError: a dtype that is not served.
        ValueError: shapes that do not fit, a temperature out of range, logits
            that `policy_loss_from_logits` has overwritten.
        IndexError: a target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
    """
    check_tensors(logits=logits, targets=targets)
    check_logits(logits, targets, temperature)
    logps, entropies, _, _ = token_logps_fwd(
        as_rows(logits), targets.reshape(-1), float(temperature), entropy
    )
    shape = targets.shape
    return TokenLogps(logps.view(shape), entropies.view(shape) if entropy else entropies)
