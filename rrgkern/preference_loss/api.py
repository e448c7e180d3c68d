"""The preference loss: the public functions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_offsets, check_tensors, values_may_be_read
from rrgkern.preference_loss.op import preference_loss_fwd
from rrgkern.preference_loss.pairs import PreferencePairs
from rrgkern.preference_loss.reference import METRICS


class PreferenceLossOutput(NamedTuple):
    """Loss, 0-d and differentiable; metrics, 0-d tensors on the same device without gradient."""

    loss: Tensor
    metrics: dict[str, Tensor]


def preference_loss(
    logps: Tensor,
    ref: Tensor,
    offsets: Tensor,
    pairs: PreferencePairs,
    *,
    tau: float = 0.1,
    length_normalized: bool = True,
    mask: Tensor | None = None,
) -> PreferenceLossOutput:
    """DPO between the sequences of a batch, on the log-probabilities that a policy loss uses.

    With the implicit reward R_i = tau Σ_t (logp_t - ref_t) of sequence i, divided by its length
    |o_i| where `length_normalized` (LN-DPO),

        loss = Σ_p weight_p · -log σ(R_positive(p) - R_negative(p))

    DPO (Rafailov et al. 2023, eq. 7); OraPO eqs. 5 to 7 and, with `oracle_pairs`, 12. Any number
    of pairs may name a sequence: its tokens are read once. The loss is exact for margins of any
    size. An empty sequence has reward 0.

    Args:
        logps: [N] log-probabilities of the policy, floating point; differentiable. fp64 stays
            fp64, everything else is computed from fp32 with sums in fp64.
        ref: [N] log-probabilities of the frozen reference.
        offsets: [S+1] int64, where sequences begin.
        pairs: which sequence is preferred to which, and how much a pair counts.
        tau: temperature, DPO's beta; above 0.
        length_normalized: mean over tokens in place of the sum.
        mask: [N] bool, True for a scored token. Nothing at the others is read, NaN included.

    Returns:
        The loss and the metrics "margin", "accuracy" (share of margins above 0),
        "reward_positive", "reward_negative", each a mean over the pairs whose weight is not 0, and
        "pairs", their number.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: a length, device or tau is wrong; on CPU, or with RRGKERN_CHECK=1, also offsets
            that do not run from 0 to N, a pair that names no sequence, a weight that is negative
            or not finite.
    """
    check_tensors(logps=logps, ref=ref, offsets=offsets, optional={"mask": mask})
    loss, _, metrics = _serve(logps, ref, offsets, pairs, tau, length_normalized, mask)
    return PreferenceLossOutput(loss, dict(zip(METRICS, metrics.detach().unbind(0), strict=True)))


def preference_advantages(
    logps: Tensor,
    ref: Tensor,
    offsets: Tensor,
    pairs: PreferencePairs,
    *,
    tau: float = 0.1,
    length_normalized: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """The preference loss as advantages: what to pay each sequence for the same gradient.

    A policy loss at ratio 1 with these advantages, scale 1 / |o_i| where `length_normalized` and 1
    otherwise, has the gradient of `preference_loss`:

        A_i = tau (Σ_{p: positive = i} - Σ_{p: negative = i}) weight_p σ(-margin_p)

    so an oracle against K members is paid +tau · mean_k σ(-margin_k), and member k
    -tau · σ(-margin_k) / K. Arguments and errors are those of `preference_loss`.

    Returns:
        [S] in the dtype of the loss (fp64 for fp64 `logps`, otherwise fp32); no gradient.
    """
    check_tensors(logps=logps, ref=ref, offsets=offsets, optional={"mask": mask})
    _, advantages, _ = _serve(logps.detach(), ref, offsets, pairs, tau, length_normalized, mask)
    return advantages


def _serve(
    logps: Tensor,
    ref: Tensor,
    offsets: Tensor,
    pairs: PreferencePairs,
    tau: float,
    length_normalized: bool,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, advantages and metrics of checked arguments."""
    if not (math.isfinite(tau) and tau > 0):
        raise ValueError(f"tau is {tau}; it must be finite and above 0")
    _check_tokens(logps, ref, offsets, mask)
    _check_pairs(pairs, offsets)
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    loss, _, advantages, metrics = preference_loss_fwd(
        logps.to(dtype).contiguous(),
        ref.detach().to(dtype).contiguous(),
        offsets.contiguous(),
        pairs.positive.contiguous(),
        pairs.negative.contiguous(),
        pairs.weight.detach().to(dtype).contiguous(),
        None if mask is None else mask.contiguous(),
        float(tau),
        length_normalized,
    )
    return loss, advantages, metrics


def _check_tokens(logps: Tensor, ref: Tensor, offsets: Tensor, mask: Tensor | None) -> None:
    if logps.ndim != 1:
        raise ValueError(f"logps has shape {tuple(logps.shape)}; wanted [N], one per token")
    for name, values in {"logps": logps, "ref": ref}.items():
        if not values.is_floating_point():
            raise TypeError(f"{name} is {values.dtype}; wanted floating point")
    if offsets.ndim != 1 or offsets.numel() == 0:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}; wanted [S+1], at least [0]")
    if offsets.dtype != torch.int64:
        raise TypeError(f"offsets is {offsets.dtype}; wanted torch.int64")
    if offsets.numel() == 1 and logps.numel():
        raise ValueError(
            f"offsets has shape (1,), so no sequence, and logps {tuple(logps.shape)}; "
            "wanted [S+1] that ends at N"
        )
    for name, tensor in {"ref": ref, "mask": mask}.items():
        if tensor is not None and tensor.shape != logps.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)} and logps {tuple(logps.shape)}; "
                "wanted the same"
            )
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}; wanted torch.bool: pass mask.bool()")
    for name, tensor in {"ref": ref, "offsets": offsets, "mask": mask}.items():
        if tensor is not None and tensor.device != logps.device:
            raise ValueError(
                f"{name} is on {tensor.device} and logps on {logps.device}; move them to one device"
            )
    check_offsets("offsets", offsets, logps.numel(), "tokens")


def _check_pairs(pairs: PreferencePairs, offsets: Tensor) -> None:
    positive, negative, weight = pairs
    for name, tensor in pairs._asdict().items():
        if tensor.ndim != 1 or tensor.shape != positive.shape:
            raise ValueError(
                f"pairs.{name} has shape {tuple(tensor.shape)} and pairs.positive "
                f"{tuple(positive.shape)}; wanted [P] for all three"
            )
        if tensor.device != offsets.device:
            raise ValueError(
                f"pairs.{name} is on {tensor.device} and offsets on {offsets.device}; "
                "move them to one device"
            )
    for name, indices in {"positive": positive, "negative": negative}.items():
        if indices.dtype != torch.int64:
            raise TypeError(f"pairs.{name} is {indices.dtype}; wanted torch.int64")
    if not weight.is_floating_point():
        raise TypeError(f"pairs.weight is {weight.dtype}; wanted floating point")

    n_sequences = offsets.numel() - 1
    lowest, highest = torch.minimum(positive, negative), torch.maximum(positive, negative)
    outside = (lowest < 0) | (highest >= n_sequences)
    if not values_may_be_read(positive):
        torch._assert_async(
            ~outside.any(), "a pair names no sequence; RRGKERN_CHECK=1 says which pair"
        )
        return
    if bool(outside.any()):
        at = int(outside.nonzero()[0])
        raise ValueError(
            f"pair {at} is of sequences {int(positive[at])} and {int(negative[at])}; "
            f"wanted 0 to {n_sequences - 1}"
        )
    wrong = ~(weight.isfinite() & (weight >= 0))
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise ValueError(
            f"the weight of pair {at} is {float(weight[at])}; it must be finite and not negative "
            "(0 leaves the pair out)"
        )
