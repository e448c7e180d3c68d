"""Weigh studies by rank for the draw, and bound its gain."""

from __future__ import annotations

import numpy as np
import torch

from rrgkern import rank_sample


def draw_by_rank(scores: torch.Tensor, share: float, seed: int, weight: str) -> np.ndarray:
    """Draws ⌊share·S + ½⌋ studies, at least one; their indices, ascending.

    Studies are ranked by falling `scores` [S] fp64, ties in an order drawn by the seed. `log_rank`
    draws without replacement with probability ∝ 1 / ln(rank + 1) (DEER eq. 5), `rank` ∝ 1 / rank,
    `top` takes the first.
    """
    sample = rank_sample(scores, share, seed=seed)
    if weight == "log_rank":
        return np.sort(sample.drawn.numpy())
    key = sample.rank.numpy().astype(np.float64)
    if weight == "rank":
        # smallest of exponential / weight: a draw without replacement (Efraimidis and Spirakis)
        key *= np.random.default_rng((seed, len(key))).exponential(size=len(key))
    return np.sort(np.argsort(key, kind="stable")[: len(sample.drawn)])


def least_zero_variance(flat: float, studies: int, count: int, weight: str) -> float:
    """Return a lower bound of the zero-variance share for a draw of `count`, ranked perfectly.

    flat: their share among all `studies`; at best every one of them is ranked last. The value is
    the draw's expectation, with a study's chance taken as 1 - exp(-w·t), t so that the chances add
    up to `count`: right in the limit of many studies.
    """
    last = round(flat * studies)
    if count >= studies:
        return last / studies
    if weight == "top":
        return max(0, count - (studies - last)) / count
    rank = np.arange(1, studies + 1)
    w = 1.0 / (np.log(rank + 1.0) if weight == "log_rank" else rank)

    def chances(t: float) -> np.ndarray:
        return -np.expm1(-w * t)

    low, high = 0.0, 1.0
    while chances(high).sum() < count:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chances(middle).sum() < count else (low, middle)
    return float(chances(high)[studies - last :].sum() / count)
