"""Draws and sampling rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rrgpolicy.rollout.transformers_engine import likeliest, sample, uniforms


def test_a_draw_depends_on_its_seed_and_place_alone() -> None:
    alone = uniforms([12345], 8)
    among = uniforms([7, 12345, 2**127], 30)
    assert torch.equal(alone[0], among[1, :8])
    assert alone.dtype == torch.float64
    assert ((among >= 0) & (among < 1)).all()
    assert among.flatten().unique().numel() == among.numel()


def test_the_stream_is_pinned() -> None:
    """A resumed run must draw what the first would have: these values may never change."""
    # Philox-4x64, key 1: the raw words as NumPy documents them, their top 53 bits.
    raw = [r >> 11 for r in np.random.Philox(key=1).random_raw(3).tolist()]
    assert uniforms([1], 3)[0].tolist() == [r / 2**53 for r in raw]


def test_frequencies_follow_the_probabilities() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0, -torch.inf, 1.0])
    count = 40_000
    draws = uniforms(range(4), count // 4).flatten()
    for temperature in (1.0, 0.5):
        ids, logps = sample(logits.expand(count, -1), draws, temperature=temperature)
        wanted = (logits / temperature).softmax(-1)
        seen = torch.bincount(ids, minlength=5) / count
        # Five standard deviations of a binomial share.
        assert ((seen - wanted).abs() <= 5 * (wanted * (1 - wanted) / count).sqrt()).all()
        torch.testing.assert_close(logps, wanted.log()[ids])


def test_extreme_draws_take_tokens_of_positive_probability() -> None:
    logits = torch.tensor([[-torch.inf, 3.0, -torch.inf, 1.0, -torch.inf]])
    for draw, token in ((0.0, 1), (1 - 2.0**-53, 3)):
        ids, _ = sample(logits, torch.tensor([draw], dtype=torch.float64), temperature=1.0)
        assert ids.tolist() == [token]


def test_top_p_keeps_the_smallest_set_and_renormalises() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.05, 0.35])
    draws = uniforms([3], 4000)[0]
    ids, logps = sample(probabilities.log().expand(4000, -1), draws, temperature=1.0, top_p=0.8)
    assert ids.unique().tolist() == [1, 3]
    torch.testing.assert_close(logps, (probabilities[ids] / 0.85).log())
    ids, logps = sample(probabilities.log().expand(4000, -1), draws, temperature=1.0, top_p=0.5)
    assert ids.unique().tolist() == [1]
    assert (logps == 0).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.4, 0.9, 1.0])
@pytest.mark.parametrize("never", [[4], [0, 4], [1, 2, 4]])
def test_ids_that_are_never_sampled_are_not_however_likely(
    never: list[int], top_p: float, temperature: float
) -> None:
    """The rest keeps its proportions; log-probs stay those of all ids, but for a nucleus."""
    logits = torch.tensor([1.0, 0.5, -1.0, 0.0, 0.5])
    logits[never] += 9.0
    # the last id is one of them, so a draw at the very end must not fall on it
    draws = torch.cat([uniforms([7], 4000)[0], torch.tensor([0.0, 1 - 2.0**-53]).double()])
    options = {"temperature": temperature, "never": torch.tensor(never)}
    rows = logits.expand(len(draws), -1)
    ids, logps = sample(rows, draws, top_p=top_p, **options)
    assert not torch.isin(ids, options["never"]).any()
    whole = torch.log_softmax(logits / temperature, -1)
    left = whole.exp()
    left[never] = 0
    kept = left if top_p == 1 else torch.where(torch.isin(torch.arange(5), ids), left, 0)
    told = whole if top_p == 1 else (kept / kept.sum()).log()
    torch.testing.assert_close(logps, told[ids])
    wanted = kept / kept.sum()
    seen = torch.bincount(ids, minlength=5) / len(ids)
    assert ((seen - wanted).abs() <= 6 * (wanted * (1 - wanted) / len(ids)).sqrt() + 1e-3).all()
    best, logp = likeliest(logits[None], **options)
    assert best.tolist() == [int(left.argmax())]
    torch.testing.assert_close(logp, whole[best])


def test_likeliest_takes_the_lowest_of_equals() -> None:
    ids, logps = likeliest(torch.tensor([[0.0, 2.0, 2.0]]), temperature=1.0)
    assert ids.tolist() == [1]
    torch.testing.assert_close(logps, torch.tensor([0.0, 2.0, 2.0]).log_softmax(0)[1:2])


def test_a_gpu_that_must_be_deterministic_leaves_its_sums_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch refuses `cumsum` there, and the run would end at its first token."""
    logits, draws = torch.tensor([[2.0, 0.0, -1.0]]), uniforms([5], 1)[:, 0]
    wanted = sample(logits, draws, temperature=1.0, top_p=0.9)
    moved: list[Tensor] = []
    to_cpu = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda self: moved.append(self) or to_cpu(self))
    monkeypatch.setattr(Tensor, "is_cuda", True)
    assert all(map(torch.equal, sample(logits, draws, temperature=1.0, top_p=0.9), wanted))
    assert not moved
    torch.use_deterministic_algorithms(True)
    try:
        found = sample(logits, draws, temperature=1.0, top_p=0.9)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, found, wanted)) and len(moved) == 2
