"""The preference loss: the public functions."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import (
    check_constants,
    check_derivatives,
    check_flags,
    check_numbers,
    check_record,
    check_tensors,
)
from rrgkern.metrics import Metrics
from rrgkern.padded import Tokens, rows_to_keep
from rrgkern.preference_loss.inputs import PreferenceInputs, PreferencePairs
from rrgkern.preference_loss.op import loss_as_passed, preference_loss_fwd
from rrgkern.preference_loss.reference import METRICS


class PreferenceLossOutput(NamedTuple):
    """Loss, 0-d and differentiable; metrics, 0-d tensors on the same device without gradient."""

    loss: Tensor
    metrics: MutableMapping[str, Tensor]


def preference_loss(  # noqa: PLR0913
    logps: Tensor,
    ref: Tensor,
    offsets: Tensor | None,
    pairs: PreferencePairs,
    *,
    tau: float = 0.1,
    length_normalized: bool = True,
    mask: Tensor | None = None,
) -> PreferenceLossOutput:
    """Compute DPO between sequences of a batch, on a policy loss's log-probabilities.

    With the implicit reward R_i = tau Σ_t (logp_t - ref_t) of sequence i, divided by its length
    |o_i| where `length_normalized` (LN-DPO),

        loss = Σ_p weight_p · -log σ(R_positive(p) - R_negative(p))

    DPO (Rafailov et al. 2023, eq. 7); OraPO eqs. 5 to 7 and, with `oracle_pairs`, 12. Any number
    of pairs may name a sequence: its tokens are read once. The loss is exact for margins of any
    size. An empty sequence has reward 0.

    The first derivative of `logps` by autograd is served; differentiating a gradient made with
    create_graph=True (making it, batched or under torch.compile), forward mode, torch.func, and a
    `ref` or pair weight that requires a gradient raise NotImplementedError.

    Args:
        logps: [N] log-probabilities of the policy, floating point; differentiable. fp64 stays
            fp64, everything else is computed from fp32 with sums in fp64. Padded: [B, T].
        ref: log-probabilities of the frozen reference, as logps.
        offsets: [S+1] int64, where sequences begin; None where `logps` is [B, T], with S = B.
        pairs: which sequence is preferred to which, and how much a pair counts.
        tau: temperature, DPO's beta; above 0.
        length_normalized: mean over tokens in place of the sum.
        mask: as logps, bool or integers, True or not 0 for a scored token. Nothing at the others
            is read, NaN included.

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
    loss, _, metrics = _serve(logps, ref, offsets, pairs, mask, (tau, length_normalized))
    return PreferenceLossOutput(loss, Metrics(METRICS, metrics))


def preference_advantages(  # noqa: PLR0913
    logps: Tensor,
    ref: Tensor,
    offsets: Tensor | None,
    pairs: PreferencePairs,
    *,
    tau: float = 0.1,
    length_normalized: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """Compute the advantages with which a policy loss has the preference loss's gradient.

    A policy loss at ratio 1 with these advantages, scale 1 / |o_i| where `length_normalized` and 1
    otherwise, has the gradient of `preference_loss`:

        A_i = tau (Σ_{p: positive = i} - Σ_{p: negative = i}) weight_p σ(-margin_p)

    so an oracle against K members is paid +tau · mean_k σ(-margin_k), and member k
    -tau · σ(-margin_k) / K. Arguments and errors are those of `preference_loss`.

    Returns:
        [S] in the dtype of the loss (fp64 for fp64 `logps`, otherwise fp32); no gradient.
    """
    with torch.no_grad():
        _, advantages, _ = _serve(logps, ref, offsets, pairs, mask, (tau, length_normalized))
    return advantages


def _serve(
    logps: Tensor,
    ref: Tensor,
    offsets: Tensor | None,
    pairs: PreferencePairs,
    mask: Tensor | None,
    options: tuple[float, bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Check the arguments as passed, and compute loss, advantages and metrics."""
    tau, length_normalized = options
    check_record("pairs", pairs, PreferencePairs)
    check_flags(length_normalized=length_normalized)
    check_tensors(logps=logps, ref=ref, optional={"offsets": offsets, "mask": mask})
    check_derivatives(logps=logps)
    check_constants(**{"ref": ref, "pairs.weight": pairs.weight})
    check_numbers("weigh pairs by pairs.weight", tau=tau)
    if not 0 < tau < math.inf:
        raise ValueError(f"tau is {tau}; it must be finite and above 0")
    tokens = Tokens("logps", logps.shape)
    mask = rows_to_keep(mask, tokens, logps.device)
    if offsets is None:
        offsets = tokens.offsets(None, logps.device)
        logps, ref = logps.reshape(-1), tokens.flat("ref", ref)
    inputs = PreferenceInputs(logps, ref, offsets, pairs, mask, tau, length_normalized)
    served = loss_as_passed(inputs)
    if served is not None:
        return served
    inputs.check()
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
