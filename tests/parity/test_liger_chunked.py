"""Liger 0.8.5's chunked GRPO loss, from hidden states, against the same from here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rrgkern import linear_policy_loss, loss_scale
from tests.parity.liger_logits import AGGREGATION, FP32, TEMPERATURE, VOCABULARY, spec_of
from tests.parity.padded import Padded, Result, assert_same, ours, padded, peer

LigerLoss = peer("liger_kernel.chunked_loss.grpo_loss").LigerFusedLinearGRPOLoss

WIDTH = 8
# (loss type, level, (beta, KL times ratio), dual clip)
CASES: list[tuple[str, str, tuple[float, bool], float | None]] = [
    *(
        (loss, level, (0.3, loss == "bnpo"), 1.4)
        for loss in ("grpo", "bnpo", "dr_grpo", "dapo")
        for level in ("token", "sequence")
    ),
    *((loss, "token", (beta, False), None) for loss in AGGREGATION for beta in (0.0, 0.3)),
]


@dataclass(frozen=True)
class Hidden:
    """[S, T, H] states, [V, H] head, [S, T] targets; the log-probabilities of `data` are theirs."""

    hidden: Tensor
    weight: Tensor
    targets: Tensor
    data: Padded

    @staticmethod
    def draw(seed: int) -> Hidden:
        generator = torch.Generator().manual_seed(seed)
        data = padded(seed, dtype=torch.float32)
        shape = data.mask.shape
        given = Hidden(
            hidden=torch.randn(*shape, WIDTH, generator=generator),
            weight=torch.randn(VOCABULARY, WIDTH, generator=generator),
            targets=torch.randint(0, VOCABULARY, shape, generator=generator),
            data=data,
        )
        logps = given.logps(given.hidden, given.weight)
        shift = logps - data.logps
        changed = data.changed(logps=logps, old=data.old + shift, ref=data.ref + shift)
        return replace(given, data=changed)

    def logps(self, hidden: Tensor, weight: Tensor) -> Tensor:
        log_p = (hidden @ weight.T / TEMPERATURE).log_softmax(-1)
        return log_p.gather(-1, self.targets[..., None])[..., 0]


def by_both(given: Hidden, case: tuple[Any, ...]) -> tuple[Result, Result]:
    """Loss, and the gradients by hidden states and head in one vector: ours, Liger's."""
    loss, level, (beta, corrected), delta = case
    data = given.data
    leaves = [given.hidden.clone().requires_grad_(), given.weight.clone().requires_grad_()]
    module = LigerLoss(
        beta=beta,
        compiled=False,
        use_ref_model=beta != 0.0,
        epsilon_low=0.1,
        epsilon_high=1.15 if loss == "cispo" else 0.15,
        loss_type=loss,
        max_completion_length=data.limit,
        importance_sampling_level=level,
        temperature=TEMPERATURE,
        delta=delta,
        use_bias_correction_kl=corrected,
    )
    value, _ = module(
        leaves[0],
        leaves[1],
        given.targets,
        data.mask.int(),
        data.advantages,
        ref_per_token_logps=data.ref if beta else None,
        old_per_token_logps=data.old,
    )
    theirs = torch.cat([g.flatten() for g in torch.autograd.grad(value, leaves)])
    mine = ours(data, spec_of(*case), AGGREGATION.get(loss, loss), packed=False)
    gradients = torch.autograd.grad(given.logps(*leaves), leaves, mine.gradient)
    flat = torch.cat([g.flatten() for g in gradients])
    return Result(mine.loss, flat, {}), Result(value.detach(), theirs, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_loss_and_gradients(case: tuple[Any, ...]) -> None:
    mine, theirs = by_both(Hidden.draw(CASES.index(case)), case)
    assert theirs.gradient.any()
    assert_same(mine, theirs, **FP32)


@pytest.mark.parametrize("value", [-150.0, torch.nan])
def test_ligers_chunked_loss_reads_padding(value: float) -> None:
    """Old log-probabilities at padding, a sentinel or NaN, end in a NaN loss."""
    given, case = Hidden.draw(7), ("grpo", "token", (0.0, False), None)
    mine, theirs = by_both(given, case)
    assert_same(mine, theirs, **FP32)
    old = given.data.old.masked_fill(~given.data.mask, value)
    dirty, broken = by_both(replace(given, data=given.data.changed(old=old)), case)
    assert broken.loss.isnan()
    assert torch.equal(dirty.loss, mine.loss) and torch.equal(dirty.gradient, mine.gradient)


def test_ligers_weight_gradient_is_rounded_after_each_sequence() -> None:
    """Liger adds the sequences' gradients up in the weight's dtype; here they are rounded once."""
    sequences, width = 64, 16
    generator = torch.Generator().manual_seed(11)
    hidden = torch.randn(sequences, 2, width, generator=generator).bfloat16()
    weight = torch.randn(VOCABULARY, width, generator=generator).bfloat16()
    targets = torch.randint(0, VOCABULARY, (sequences, 2), generator=generator)
    # All pull the same way, as in a step that learns something.
    advantages = torch.rand(sequences, generator=generator) + 0.5
    offsets = torch.arange(0, 2 * sequences + 1, 2)

    exact = weight.double().requires_grad_()
    log_p = (hidden.double() @ exact.T).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    (truth,) = torch.autograd.grad(-(advantages[:, None].double() * log_p).mean(), exact)

    leaf = weight.clone().requires_grad_()
    loss = LigerLoss(beta=0.0, compiled=False, use_ref_model=False, loss_type="grpo")
    value, _ = loss(hidden, leaf, targets, torch.ones_like(targets), advantages)
    (theirs,) = torch.autograd.grad(value, leaf)

    out = linear_policy_loss(
        hidden.flatten(0, 1),
        leaf,
        targets.flatten(),
        advantages,
        offsets,
        scale=loss_scale("grpo", offsets),
    )
    (mine,) = torch.autograd.grad(out.loss, leaf)

    def error(gradient: Tensor) -> float:
        return float((gradient.double() - truth).norm() / truth.norm())

    # One rounding to bf16 is at most 2^-9 of a number.
    assert error(mine) < 2**-8
    assert error(theirs) > 2 * error(mine)
