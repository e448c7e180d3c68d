"""The batches that benches measure on."""

from __future__ import annotations

import pytest
import torch

from bench.batch import KINDS, Sizes, draw_head, draw_layout, draw_logits

SIZES = Sizes(groups=10, members=2, length=12, width=8, vocabulary=61)


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_masked_rows_and_flat_groups(kind):
    batch = draw_layout(SIZES, kind, 1)
    masked, flat = KINDS[kind]
    assert int(batch.mask.sum()) == SIZES.scored(kind)
    assert SIZES.scored(kind) == pytest.approx((1 - masked) * SIZES.positions, abs=1)
    advantages = batch.advantages.view(SIZES.groups, SIZES.members)
    assert int((advantages == 0).all(1).sum()) == round(flat * SIZES.groups)
    assert int((advantages != 0).all(1).sum()) == SIZES.groups - round(flat * SIZES.groups)
    lengths = batch.mask.sum(1)
    assert torch.equal(batch.offsets.diff(), lengths) and lengths.min() > 0
    assert (lengths.unique().numel() > 1) == (masked > 0)
    # One run of scored tokens in each sequence.
    edges = torch.nn.functional.pad(batch.mask.int(), (1, 1)).diff(dim=1).clamp(min=0)
    assert edges.sum(1).eq(1).all()
    assert torch.allclose(batch.scale * lengths * len(lengths), torch.ones(len(lengths)))


def test_old_log_probabilities_lie_near_the_policy():
    sizes = Sizes(groups=5, members=2, length=8, width=8, vocabulary=61)
    values, batch = draw_logits(sizes, "dense", 2, device="cpu", dtype=torch.float32)
    assert values.shape[:2] == batch.mask.shape and not batch.mask[:, -1].any()
    assert torch.equal(batch.every.diff(), torch.full((sizes.sequences,), sizes.length + 1))
    logps = values.log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    difference = (batch.old - logps).detach()[batch.mask]
    assert difference.std() == pytest.approx(0.1, rel=0.3)
    drawn = draw_head(sizes, "dense", 2, device="cpu", dtype=torch.float32, frozen=True)
    assert drawn.hidden.requires_grad and not drawn.weight.requires_grad
    # As a policy's own samples: likely, not certain.
    uniform = -torch.tensor(float(sizes.vocabulary)).log()
    assert uniform + 1 < drawn.batch.old.mean() < -0.1


def test_seeds_differ_and_repeat():
    sizes = Sizes(groups=3, members=2, length=6, width=8, vocabulary=61)
    first, again, other = (
        draw_head(sizes, "domain", seed, device="cpu", dtype=torch.float32, frozen=False)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.hidden, again.hidden) and torch.equal(first.weight, again.weight)
    assert torch.equal(first.batch.mask, again.batch.mask)
    assert not torch.equal(first.hidden, other.hidden)
    assert not torch.equal(first.batch.mask, other.batch.mask)
