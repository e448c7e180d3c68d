"""TRL 1.16's GRPO loss on its own [B, T] tensors, and ours on the same, nothing packed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, loss_scale, policy_loss, policy_loss_from_logits, token_logps
from tests.parity.test_trl_policy_loss import LIMIT, by_trl, padded

LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")
VOCABULARY = 23


def spec_of(level: str, beta: float) -> PolicyLoss:
    return PolicyLoss(
        ratio_level=level, eps_low=0.1, eps_high=0.15, dual_clip=1.3, beta=beta, kl="k3"
    )


def batch(seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """TRL's tensors with a mask of integers, and logits and labels whose log-probs they are."""
    p = padded(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, tokens = p["mask"].shape
    logits = torch.randn(rows, tokens + 1, VOCABULARY, generator=generator, dtype=torch.float64)
    labels = torch.randint(VOCABULARY, (rows, tokens), generator=generator)
    shifted = logits[:, :-1].log_softmax(-1).gather(-1, labels[..., None])[..., 0] - p["logps"]
    p |= {name: p[name] + shifted for name in ("logps", "old", "ref")}
    logits[:, :-1][~p["mask"]] = torch.nan
    return p, logits, labels.masked_fill(~p["mask"], -100)


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_trls_in_padded_tensors(loss: str) -> None:
    for number, (level, beta) in enumerate((("token", 0.0), ("token", 0.3), ("sequence", 0.3))):
        p, logits, labels = batch(number)
        theirs, wanted = by_trl(p, loss, level, beta, False, None)
        mask = p["mask"].int()
        options = {"dr_grpo": {"max_length": LIMIT}, "dapo": {"total_tokens": int(mask.sum())}}
        rest = {
            "scale": loss_scale(loss, mask=mask, **options.get(loss, {})),
            **{"old": p["old"], "ref": p["ref"], "mask": mask, "spec": spec_of(level, beta)},
        }
        leaf = logits.requires_grad_()
        logps = token_logps(leaf[:, :-1], labels, mask=mask).logps
        composed = policy_loss(logps, p["advantages"], **rest).loss
        one_pass = policy_loss_from_logits(leaf[:, :-1], labels, p["advantages"], **rest).loss
        by_logps, by_logits = torch.autograd.grad(composed, (logps, leaf), retain_graph=True)
        (direct,) = torch.autograd.grad(one_pass, leaf)
        for ours in (composed, one_pass):
            torch.testing.assert_close(ours.detach(), theirs, rtol=1e-11, atol=1e-14)
        torch.testing.assert_close(by_logps[p["mask"]], wanted, rtol=1e-11, atol=1e-14)
        torch.testing.assert_close(direct, by_logits, rtol=1e-9, atol=1e-14)
        assert not direct[:, :-1][~p["mask"]].any()
