"""The definition in plain PyTorch: logits by one product, then `token_logps` on them."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps import reference
from rrgkern.logps.online_softmax import stats_dtype


def head_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float) -> Tensor:
    """[N, V] in fp32, or fp64 for fp64 inputs: softcap * tanh((hidden W^T + bias) / softcap)."""
    wide = stats_dtype(hidden.dtype)
    logits = hidden.to(wide) @ weight.to(wide).T
    if bias is not None:
        logits = logits + bias.to(wide)
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """logps and entropy [N], differentiable by autograd."""
    return reference.forward(head_logits(hidden, weight, bias, softcap), targets, temperature)


def backward(
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of sum(coef * logps + coef_entropy * entropy) for hidden, weight and bias."""
    logits = head_logits(hidden, weight, bias, softcap)
    dz = reference.backward(coef, coef_entropy, logits, targets, temperature)
    if softcap:
        dz = dz * (1 - (logits / softcap) ** 2)
    wide = dz.dtype
    return (
        (dz @ weight.to(wide)).to(hidden.dtype),
        (dz.T @ hidden.to(wide)).to(weight.dtype),
        dz.sum(0).to(weight.dtype if bias is None else bias.dtype),
    )
