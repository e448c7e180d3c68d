"""Serve CPUs with csrc/preference_loss: sums by sequence, pairs and coefficients in one call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.ops import pack
from rrgkern.preference_loss.inputs import PreferenceInputs
from rrgkern.preference_loss.reference import METRICS

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


def launch(*inputs: Any) -> Outputs:
    """Serve `rrgkern::preference_loss_fwd`; arguments and results are those of the reference.

    Raises:
        ValueError: tensors that do not fit together, which the checks of the door refuse.
    """
    outputs = _outputs(pack(PreferenceInputs, inputs), check_weights=False)
    if outputs is None:
        raise ValueError(
            "offsets, pairs or sizes lead out of the tensors; preference_loss says which argument"
        )
    return outputs


def as_passed(call: PreferenceInputs) -> Outputs | None:
    """The same from what a caller passed; None where it is not ready.

    Dtypes, lengths, gaps, offsets, pairs and weights are checked in C++, which says only yes or no.
    """
    wide = call.logps.dtype in (torch.float32, torch.float64)
    return _outputs(call, check_weights=True) if wide and call.offsets.numel() else None


def _outputs(call: PreferenceInputs, check_weights: bool) -> Outputs | None:
    logps, ref, offsets, (positive, negative, weight), mask, tau, length_normalized = call
    loss, coef = logps.new_empty(()), torch.empty_like(logps)
    advantages = logps.new_empty(offsets.numel() - 1)
    metrics = logps.new_empty(len(METRICS))
    ready = csrc.load().preference_loss_cpu(
        *(logps, ref, offsets, positive, negative, weight, mask),
        *(float(tau), length_normalized, check_weights),
        *(loss, coef, advantages, metrics, torch.get_num_threads()),
    )
    return (loss, coef, advantages, metrics) if ready else None
