"""Bound an fp32 result's error: the kernel must pass, and mutants must fail."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.policy_loss.reference import policy_loss_reference
from tests.rrgkern.policy_loss.cases import Batch
from tests.tolerance import assert_close_to_truth

EPS = torch.finfo(torch.float32).eps


def check_fp32(spec: PolicyLoss, data: Batch, served: tuple[Tensor, ...]) -> None:
    """Raise unless loss, gradients and metrics in fp32 are as near the truth as eager PyTorch."""
    loss, coef, coef_entropy, metrics = served
    truth = policy_loss_reference(*data.arguments(spec))
    single = data.to(torch.float32)
    eager_loss, eager_coef, eager_entropy = eager(spec, single)
    eager_metrics = policy_loss_reference(*single.arguments(spec))[3]
    assert_close_to_truth(loss, eager_loss, truth[0], tiny=4 * EPS * magnitude(spec, data).sum())
    assert_close_to_truth(coef, eager_coef, truth[1], tiny=4 * EPS * magnitude(spec, data))
    assert_close_to_truth(coef_entropy, eager_entropy, truth[2])
    assert_close_to_truth(metrics, eager_metrics, truth[3], tiny=4 * EPS * (1 + truth[3].abs()))


def eager(spec: PolicyLoss, data: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients by autograd, in the dtype of the batch."""
    logps, entropy = data.logps.clone().requires_grad_(), data.entropy.clone().requires_grad_()
    moving = data.changed(logps=logps, entropy=entropy)
    t = moving.terms(spec)
    loss = (t.scale * t.loss).sum()
    gradients = torch.autograd.grad(loss, (logps, entropy), materialize_grads=True)
    entropy_gradient = gradients[1] if spec.entropy_coef else entropy.new_empty(0)
    return loss.detach(), gradients[0], entropy_gradient


def magnitude(spec: PolicyLoss, data: Batch) -> Tensor:
    """[N] sum of the absolute parts of each coef and loss: a sum may cancel, its rounding not."""
    t = data.terms(spec)
    policy = t.sampler_ratio * t.advantage.abs() * t.gamma * t.ratio.clamp(min=1)
    reference = spec.beta * (1 + t.kl_log_ratio.abs()) * t.ratio.clamp(min=1) * (1 + t.kl)
    return t.scale * (policy * (1 + t.logps.abs()) + reference + t.entropy)
