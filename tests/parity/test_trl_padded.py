"""TRL 1.16's GRPO loss on its own [B, T] tensors, and ours on the same, nothing packed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, loss_scale, policy_loss, policy_loss_from_logits, token_logps
from tests.parity.padded import FP64, Padded, padded, unrounded
from tests.parity.trl_grpo import trl

LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")
VOCABULARY = 23


def spec_of(level: str, beta: float) -> PolicyLoss:
    return PolicyLoss(
        ratio_level=level, eps_low=0.1, eps_high=0.15, dual_clip=1.3, beta=beta, kl="k3"
    )


def batch(seed: int) -> tuple[Padded, Tensor, Tensor]:
    """The batch, and logits [B, T + 1, V] and labels [B, T] whose log-probabilities are its."""
    data = padded(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, tokens = data.mask.shape
    logits = torch.randn(rows, tokens + 1, VOCABULARY, generator=generator, dtype=torch.float64)
    labels = torch.randint(VOCABULARY, (rows, tokens), generator=generator)
    shift = logits[:, :-1].log_softmax(-1).gather(-1, labels[..., None])[..., 0] - data.logps
    moved = {name: getattr(data, name) + shift for name in ("logps", "old", "ref")}
    logits[:, :-1][~data.mask] = torch.nan
    return data.changed(**moved), logits, labels.masked_fill(~data.mask, -100)


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_trls_in_padded_tensors(loss: str) -> None:
    for number, (level, beta) in enumerate((("token", 0.0), ("token", 0.3), ("sequence", 0.3))):
        data, logits, labels = batch(number)
        options = {"delta": 1.3, "use_bias_correction_kl": False}
        theirs = trl(data, loss, level, beta=beta, epsilon=(0.1, 0.15), **options)
        mask = data.mask.int()
        counts = {"dr_grpo": {"max_length": data.limit}, "dapo": {"total_tokens": data.tokens}}
        rest = {
            "scale": unrounded(loss_scale(loss, mask=mask, **counts.get(loss, {}))),
            **{"old": data.old, "ref": data.ref, "mask": mask, "spec": spec_of(level, beta)},
        }
        leaf = logits.requires_grad_()
        logps = token_logps(leaf[:, :-1], labels, mask=mask).logps
        composed = policy_loss(logps, data.advantages, **rest).loss
        one_pass = policy_loss_from_logits(leaf[:, :-1], labels, data.advantages, **rest).loss
        by_logps, by_logits = torch.autograd.grad(composed, (logps, leaf), retain_graph=True)
        (direct,) = torch.autograd.grad(one_pass, leaf)
        for ours in (composed, one_pass):
            torch.testing.assert_close(ours.detach(), theirs.loss, **FP64)
        torch.testing.assert_close(by_logps[data.mask], theirs.gradient[data.mask], **FP64)
        torch.testing.assert_close(direct, by_logits, rtol=1e-9, atol=1e-14)
        assert not direct[:, :-1][~data.mask].any()
