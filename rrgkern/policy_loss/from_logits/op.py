"""Register `policy_loss_from_logits_fwd`, its in-place form, and the upstream gradient's factor.

Without register_autograd: the gradient is an output here, and `autograd.py` hands it over. On CPUs
csrc/policy_loss reads a row once and writes its gradient once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.dispatch import register_csrc, register_triton
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.ops import custom_op, flatten, pack
from rrgkern.policy_loss.csrc_launch import policy_arguments
from rrgkern.policy_loss.from_logits.reference import LogitsOutputs, from_logits_reference
from rrgkern.policy_loss.inputs import LogitsInputs, LogitsInputsAnew
from rrgkern.policy_loss.reference import METRICS


@custom_op("rrgkern::policy_loss_from_logits_fwd", LogitsInputsAnew)
def policy_loss_from_logits_fwd(*inputs: Any) -> LogitsOutputs:
    """Serve with the reference; without `with_gradient` the gradient has size 0."""
    call, with_gradient = pack(LogitsInputsAnew, inputs)
    outputs = from_logits_reference(*flatten(call))
    return outputs if with_gradient else outputs._replace(gradient=call.logits.new_empty(0))


@policy_loss_from_logits_fwd.register_fake
def _(*inputs: Any) -> LogitsOutputs:
    call, with_gradient = pack(LogitsInputsAnew, inputs)
    loss, active, metrics = _empty_results(call)
    gradient = call.logits.new_empty(call.logits.shape if with_gradient else 0)
    return LogitsOutputs(loss, gradient, active, metrics)


@custom_op("rrgkern::policy_loss_from_logits_fwd_", LogitsInputs, mutates=("logits",))
def policy_loss_from_logits_fwd_(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Loss 0-d, active [N] bool, metrics; the logits become their gradient."""
    loss, gradient, active, metrics = from_logits_reference(*inputs)
    pack(LogitsInputs, inputs).logits.copy_(gradient)
    return loss, active, metrics


@policy_loss_from_logits_fwd_.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_results(pack(LogitsInputs, inputs))


def _empty_results(call: LogitsInputs) -> tuple[Tensor, Tensor, Tensor]:
    logits, dtype = call.logits, stats_dtype(call.logits.dtype)
    active = torch.empty_like(call.targets, dtype=torch.bool)
    return logits.new_empty((), dtype=dtype), active, logits.new_empty(len(METRICS), dtype=dtype)


@torch.library.custom_op("rrgkern::policy_loss_from_logits_scale_", mutates_args=("gradient",))
def policy_loss_from_logits_scale_(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    """Multiply the active rows of the gradient by `factor` 0-d, read on the device."""
    rows = active.view(gradient.shape[:-1])[..., None]
    gradient.copy_(torch.where(rows, gradient.to(factor.dtype) * factor, gradient))


def anew_by_csrc(*inputs: Any) -> LogitsOutputs:
    """Serve `rrgkern::policy_loss_from_logits_fwd`: the gradient goes to memory of its own."""
    call, with_gradient = pack(LogitsInputsAnew, inputs)
    shape = call.logits.shape if with_gradient else (0,)
    return sweep_rows(call, call.logits.new_empty(shape))


def inplace_by_csrc(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Serve `rrgkern::policy_loss_from_logits_fwd_`: the gradient takes the place of the logits."""
    call = pack(LogitsInputs, inputs)
    loss, _, active, metrics = sweep_rows(call, call.logits)
    return loss, active, metrics


def scale_by_csrc(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    """Serve `rrgkern::policy_loss_from_logits_scale_`."""
    csrc.load().scale_rows_cpu(gradient, active, float(factor), torch.get_num_threads())


def sweep_rows(call: LogitsInputs, gradient: Tensor) -> LogitsOutputs:
    """Write loss, metrics and gradient; `gradient` is fresh memory, the logits, or of size 0."""
    logits, targets, policy, temperature, entropy = call
    loss, active, metrics = _empty_results(call)
    wrong = csrc.load().policy_loss_from_logits_cpu(
        *(logits, targets.contiguous(), *policy_arguments(policy), temperature, entropy),
        *(gradient, loss, active, metrics, torch.get_num_threads()),
    )
    if wrong >= 0:
        check_targets(targets, logits.shape[-1], policy.mask)
    return LogitsOutputs(loss, gradient, active, metrics)


TRITON = "rrgkern.policy_loss.from_logits.triton_launch"
register_triton(policy_loss_from_logits_fwd, TRITON, "policy_loss_from_logits_fwd")
register_triton(policy_loss_from_logits_fwd_, TRITON, "policy_loss_from_logits_fwd_")
register_triton(policy_loss_from_logits_scale_, TRITON, "policy_loss_from_logits_scale_")
register_csrc(policy_loss_from_logits_fwd, anew_by_csrc, ("cpu",), "policy_loss")
register_csrc(policy_loss_from_logits_fwd_, inplace_by_csrc, ("cpu",), "policy_loss")
register_csrc(policy_loss_from_logits_scale_, scale_by_csrc, ("cpu",), "logps")
