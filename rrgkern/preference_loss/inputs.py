"""Arguments of the preference loss, and their checks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_begins, check_device, check_offsets, values_may_be_read


class PreferencePairs(NamedTuple):
    """P pairs of sequences of one batch; a pair of weight 0 takes no part.

    positive, negative: [P] int64, the preferred sequence and the other one.
    weight: [P] fp32 or fp64, not negative.
    """

    positive: Tensor
    negative: Tensor
    weight: Tensor


class PreferenceInputs(NamedTuple):
    """Arguments of `rrgkern::preference_loss_fwd`, as in `preference_loss`."""

    logps: Tensor
    ref: Tensor
    offsets: Tensor
    pairs: PreferencePairs
    mask: Tensor | None
    tau: float
    length_normalized: bool

    def check(self) -> None:
        """Raise TypeError or ValueError for an argument that is wrong, and name it."""
        logps, ref, offsets, pairs, mask, *_ = self
        if logps.ndim != 1:
            raise ValueError(
                f"logps has shape {tuple(logps.shape)}; wanted [N] with offsets, [B, T] without"
            )
        for name, values in {"logps": logps, "ref": ref}.items():
            if not values.is_floating_point():
                raise TypeError(f"{name} is {values.dtype}; wanted floating point")
        check_begins("offsets", offsets, "S+1", "logps", logps, logps.numel())
        for name, tensor in {"ref": ref, "mask": mask}.items():
            if tensor is not None and tensor.shape != logps.shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)} and logps {tuple(logps.shape)}; "
                    "wanted the same"
                )
            check_device(name, tensor, "logps", logps)
        check_offsets("offsets", offsets, logps.numel(), "tokens")
        _check_pairs(pairs, offsets)


def _check_pairs(pairs: PreferencePairs, offsets: Tensor) -> None:
    positive, negative, weight = pairs
    for name, tensor in pairs._asdict().items():
        if tensor.ndim != 1 or tensor.shape != positive.shape:
            raise ValueError(
                f"pairs.{name} has shape {tuple(tensor.shape)} and pairs.positive "
                f"{tuple(positive.shape)}; wanted [P] for all three"
            )
        check_device(f"pairs.{name}", tensor, "offsets", offsets)
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
