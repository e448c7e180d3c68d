"""The ops behind `preference_loss`: the forward takes the gradient along.

csrc/preference_loss serves CPUs: sums by sequence, pairs and coefficients in one call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.dispatch import direct, register_csrc, register_triton
from rrgkern.first_order import first_order, made_already
from rrgkern.ops import custom_op, gradients, pack
from rrgkern.preference_loss.inputs import PreferenceInputs
from rrgkern.preference_loss.reference import METRICS, preference_loss_reference

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


@custom_op("rrgkern::preference_loss_fwd", PreferenceInputs)
def preference_loss_fwd(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss 0-d, coef [N], advantages [S], metrics [len(METRICS)]."""
    return preference_loss_reference(pack(PreferenceInputs, inputs))


@preference_loss_fwd.register_fake
def _empty_outputs(*inputs: Any) -> Outputs:
    logps, _, offsets, *_ = inputs
    return (
        logps.new_empty(()),
        torch.empty_like(logps),
        logps.new_empty(offsets.numel() - 1),
        logps.new_empty(len(METRICS)),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])
    ctx.sources = inputs[:1]


@first_order("preference_loss")
def _backward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_loss is None:
        return gradients(PreferenceInputs)
    return gradients(PreferenceInputs, logps=ctx.saved_tensors[0] * grad_loss)


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
    outputs: Outputs = _empty_outputs(*call)
    ready = csrc.load().preference_loss_cpu(
        *(logps, ref, offsets, positive, negative, weight, mask),
        *(float(tau), length_normalized, check_weights),
        *(*outputs, torch.get_num_threads()),
    )
    return outputs if ready else None


preference_loss_fwd.register_autograd(_backward, setup_context=_setup_context)
register_triton(preference_loss_fwd, "rrgkern.preference_loss.triton_preference_loss", "launch")
register_csrc(preference_loss_fwd, launch, ("cpu",), "preference_loss")


_apply = made_already("preference_loss")


def loss_as_passed(call: PreferenceInputs) -> tuple[Tensor, Tensor, Tensor] | None:
    """Loss, advantages and metrics by one call of csrc, which checks the arguments too.

    None where the op must serve, or where an argument is wrong or has to be converted first.
    """
    tensors = (call.logps, call.ref, call.offsets, *call.pairs, call.mask)
    if direct(preference_loss_fwd, *tensors) is preference_loss_fwd:
        return None
    outputs = as_passed(call)
    if outputs is None:
        return None
    loss, coef, advantages, metrics = outputs
    if call.logps.requires_grad and torch.is_grad_enabled():
        loss = _apply(call.logps, None, (loss, coef, None))
    return loss, advantages, metrics
