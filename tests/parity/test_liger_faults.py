"""Show the faults of Liger 0.8.5's Triton GRPO loss, and our result on the same input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, loss_scale, policy_loss_from_logits, token_logps
from tests.parity.liger_logits import FP32, TEMPERATURE, Logits, by_both, liger, spec_of
from tests.parity.padded import ours

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("loss", ["bnpo", "sapo"])
@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_liger_gives_nan_where_ours_is_finite(loss: str, advantage: float) -> None:
    """A log-ratio of 95, clipped, saturated or without advantage: inf · 0 in Liger's gradient."""
    given = Logits.draw(5, empty=False)
    old, advantages = given.data.old.clone(), given.data.advantages.clone()
    old[0, 0] = given.data.logps[0, 0] - 95.0
    advantages[0] = advantage
    given = given.with_data(old=old, advantages=advantages)
    mine, theirs = by_both(given, loss, "token")
    assert theirs.gradient[0, 0].isnan().all()
    assert mine.loss.isfinite() and mine.gradient.isfinite().all()
    assert mine.gradient[0, 0].eq(0).all()
    others = torch.ones_like(given.targets, dtype=torch.bool)
    others[0, 0] = False
    torch.testing.assert_close(
        mine.gradient[:, :-1][others], theirs.gradient[:, :-1][others], **FP32
    )


def test_liger_misreads_a_row_that_begins_with_minus_infinity() -> None:
    """A vocabulary whose first 2,048 columns are forbidden: exp(-inf - -inf) in the running sum."""
    width, live = 2048 + 64, slice(2048, None)
    generator = torch.Generator().manual_seed(6)
    logits = torch.full((1, 3, width), -torch.inf)
    logits[..., live] = torch.randn(1, 3, 64, generator=generator)
    targets = torch.tensor([[2050, 2100]])
    truth = logits[:, :-1, live].double().log_softmax(-1).gather(-1, targets[..., None] - 2048)

    mine = token_logps(logits[:, :-1].reshape(2, width), targets.flatten()).logps
    torch.testing.assert_close(mine.double(), truth.flatten(), rtol=1e-6, atol=1e-6)
    theirs = liger.fused_selective_log_softmax(logits, targets, temperature=1.0)
    assert not torch.allclose(theirs.double(), truth[..., 0], rtol=1e-2)


def test_liger_takes_token_advantages_for_those_of_sequences() -> None:
    """[S, T] advantages: Liger reads the first S numbers of them, and says nothing."""
    given = Logits.draw(8, empty=False)
    generator = torch.Generator().manual_seed(8)
    by_token = torch.randn(given.targets.shape, generator=generator)
    theirs = given.with_data(advantages=by_token).by_liger("bnpo", beta=0.0)
    misread = given.with_data(advantages=by_token.flatten()[: len(by_token)].clone())
    assert torch.equal(theirs.loss, misread.by_liger("bnpo", beta=0.0).loss)

    spec = spec_of("bnpo", "token")
    mine = ours(given.with_data(advantages=by_token).data, spec, "bnpo", packed=False)
    one_by_one = torch.zeros_like(mine.gradient)
    for t in range(by_token.shape[1]):
        column = given.with_data(advantages=by_token[:, t].clone())
        one_by_one[:, t] = ours(column.data, spec, "bnpo", packed=False).gradient[:, t]
    torch.testing.assert_close(mine.gradient, one_by_one, **FP32)
    assert float(theirs.loss) != pytest.approx(float(mine.loss), rel=0.1)


def test_liger_overwrites_logits_that_another_term_still_needs() -> None:
    """In-place is Liger's default, and autograd is not told: the other gradient is wrong.

    Here it is asked for, and whoever saved the logits raises.
    """
    given = Logits.draw(9, empty=False)
    mask = given.data.mask.flatten()
    offsets = torch.arange(0, len(mask) + 1, given.data.limit)

    def liger_loss(logits: Tensor, inplace: bool) -> Tensor:
        return given.loss_of_liger(logits, "bnpo", inplace=inplace, beta=0.0)[0]

    def our_loss(logits: Tensor, inplace: bool) -> Tensor:
        return policy_loss_from_logits(
            logits[:, :-1],
            given.targets,
            given.data.advantages,
            offsets,
            scale=loss_scale("bnpo", offsets, mask=mask),
            old=given.data.old.flatten(),
            mask=mask,
            temperature=TEMPERATURE,
            spec=spec_of("bnpo", "token"),
            inplace=inplace,
        ).loss

    def gradient(loss_of: Callable[[Tensor, bool], Tensor], inplace: bool) -> Tensor:
        leaf = given.logits.clone().requires_grad_()
        logits = leaf * 1.0
        regulariser = logits.square().mean()
        return torch.autograd.grad(loss_of(logits, inplace) + regulariser, leaf)[0]

    right = gradient(liger_loss, inplace=False)
    torch.testing.assert_close(gradient(our_loss, inplace=False), right, **FP32)
    assert not torch.allclose(gradient(liger_loss, inplace=True), right, rtol=1e-2, atol=1e-4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradient(our_loss, inplace=True)


def test_ligers_luspo_depends_on_padding() -> None:
    """LUSPO is the mean over sequences of their sums; Liger's is that only without padding."""
    spec = PolicyLoss(surrogate="luspo", ratio_level="sequence", eps_low=0.1, eps_high=0.15)

    def losses(given: Logits) -> tuple[float, float]:
        theirs = given.by_liger("luspo", beta=0.0, importance_sampling_level="sequence")
        return float(ours(given.data, spec, "sum", packed=False).loss), float(theirs.loss)

    given = Logits.draw(4, empty=False)
    mine, theirs = losses(given.with_data(mask=torch.ones_like(given.data.mask)))
    assert theirs == pytest.approx(mine, rel=1e-4)
    mine, theirs = losses(given)
    assert theirs != pytest.approx(mine, rel=0.1)
    mine_wider, theirs_wider = losses(given.padded_by(given.data.limit))
    assert mine_wider == pytest.approx(mine, rel=1e-6)
    assert theirs_wider == pytest.approx(theirs / 2, rel=1e-4)
