"""Serve CPUs with csrc/policy_loss: a row is read once and its gradient written once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.ops import pack
from rrgkern.policy_loss.csrc_launch import policy_arguments
from rrgkern.policy_loss.from_logits.reference import LogitsOutputs
from rrgkern.policy_loss.inputs import LogitsInputs, LogitsInputsAnew
from rrgkern.policy_loss.reference import METRICS


def policy_loss_from_logits_fwd(*inputs: Any) -> LogitsOutputs:
    """Serve `rrgkern::policy_loss_from_logits_fwd`: the gradient goes to memory of its own."""
    call, with_gradient = pack(LogitsInputsAnew, inputs)
    shape = call.logits.shape if with_gradient else (0,)
    return sweep_rows(call, call.logits.new_empty(shape))


def policy_loss_from_logits_fwd_(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Serve `rrgkern::policy_loss_from_logits_fwd_`: the gradient takes the place of the logits."""
    call = pack(LogitsInputs, inputs)
    loss, _, active, metrics = sweep_rows(call, call.logits)
    return loss, active, metrics


def policy_loss_from_logits_scale_(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    """Serve `rrgkern::policy_loss_from_logits_scale_`."""
    csrc.load().scale_rows_cpu(gradient, active, float(factor), torch.get_num_threads())


def sweep_rows(call: LogitsInputs, gradient: Tensor) -> LogitsOutputs:
    """Write loss, metrics and gradient; `gradient` is fresh memory, the logits, or of size 0."""
    logits, targets, policy, temperature, entropy = call
    dtype = stats_dtype(logits.dtype)
    loss = logits.new_empty((), dtype=dtype)
    metrics = logits.new_empty(len(METRICS), dtype=dtype)
    active = logits.new_empty(targets.numel(), dtype=torch.bool)
    wrong = csrc.load().policy_loss_from_logits_cpu(
        *(logits, targets.contiguous(), *policy_arguments(policy), temperature, entropy),
        *(gradient, loss, active, metrics, torch.get_num_threads()),
    )
    if wrong >= 0:
        check_targets(targets, logits.shape[-1], policy.mask)
    return LogitsOutputs(loss, gradient, active, metrics)
