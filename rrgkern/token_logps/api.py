"""`token_logps`: log-probabilities and entropy of tokens, from logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rrgkern.token_logps.layout import as_rows
from rrgkern.token_logps.op import token_logps_fwd
from rrgkern.token_logps.result import TokenLogps

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def token_logps(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, entropy: bool = False
) -> TokenLogps:
    """log softmax(logits / T)[target], and the entropy of the same softmax when asked.

    Args:
        logits: [..., V] fp16, bf16, fp32 or fp64, any strides. [N, V] and [B, L, V] are read where
            they lie, `logits[:, :-1]` too; other layouts that cannot be viewed so are copied.
        targets: [...] int64, each in [0, V). Ignored tokens (-100) are left out by the caller.
        temperature: T > 0, a run-time value.
        entropy: also return the entropy, differentiable like `logps`.

    Returns:
        `TokenLogps(logps, entropy)` in nats, of the shape of `targets`; fp32, fp64 for fp64
        logits. A logp is exact when the softmax has collapsed on its target: the target stays
        out of the sum, logp = -softplus(logsumexp of the others - z_target).

    The gradient of the logits has their dtype. A row whose incoming gradients (of logps and of
    entropy) are both 0 is not read in the backward, and its gradient is 0 even where it is NaN.

    Raises:
        TypeError: a dtype that is not served.
        ValueError: shapes that do not fit, a temperature that is not positive.
        IndexError: a target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
    """
    if logits.dtype not in FLOATS:
        raise TypeError(f"logits is {logits.dtype}, wanted float16, bfloat16, float32 or float64")
    if targets.dtype != torch.int64:
        raise TypeError(f"targets is {targets.dtype}, wanted int64")
    if logits.ndim < 1 or logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits is {list(logits.shape)} and targets {list(targets.shape)}, wanted [..., V] "
            "and [...]"
        )
    if logits.shape[-1] < 1:
        raise ValueError(f"logits is {list(logits.shape)}, wanted a vocabulary of at least 1")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature is {temperature}, wanted a positive number")
    logps, entropies, _, _ = token_logps_fwd(
        as_rows(logits), targets.reshape(-1), float(temperature), entropy
    )
    shape = targets.shape
    return TokenLogps(logps.view(shape), entropies.view(shape) if entropy else entropies)
