"""Choose studies to train on: the public functions of DDSampling (DEER, section 3.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_number, check_tensors
from rrgkern.diversity.op import diagnostic_diversity_op, rank_sample_op


class RankSample(NamedTuple):
    """A draw by rank.

    Attributes:
        drawn: [M] int64, the studies drawn, in the order of the draw: a shorter draw under the
            same seed is a prefix of it.
        rank: [S] int64, rank of every study, 1 for the most diverse.
    """

    drawn: Tensor
    rank: Tensor


def diagnostic_diversity(positive: Tensor) -> Tensor:
    """Measure how much the diagnoses of a study's sampled reports differ (DEER eq. 3, 4).

    D = Σ_c σ_c, with σ_c the population standard deviation of class c over the K samples:
    sqrt(n (K − n)) / K where n are positive. Studies of equal diversity get equal numbers, to the
    bit and on every device, whichever classes their samples differ in.

    Args:
        positive: [S, K, C] bool, whether sample k of study s is labelled with class c; from class
            ids `(ids == 1) | (ids == 3)`: positive or uncertain. The paper has K = 10.

    Returns:
        [S] fp64 on the device of `positive`, in [0, C/2]; no gradient.

    Raises:
        TypeError: labels that are not bool.
        ValueError: the wrong number of axes, or no samples.
    """
    check_tensors(positive=positive)
    if positive.dtype != torch.bool:
        raise TypeError(
            f"positive is {positive.dtype}, wanted torch.bool: from class ids take "
            "(ids == 1) | (ids == 3)"
        )
    if positive.ndim != 3 or positive.shape[1] == 0:
        raise ValueError(
            f"positive is {list(positive.shape)}, wanted [S, K, C]: studies, at least one sample "
            "of each, classes"
        )
    factor, radical, roots = deviations(positive.shape[1])
    device = positive.device
    diversity: Tensor = diagnostic_diversity_op(
        positive.contiguous().view(torch.uint8),
        torch.tensor(factor, device=device),
        torch.tensor(radical, device=device),
        torch.tensor(roots, dtype=torch.float64, device=device),
    )
    return diversity


def rank_sample(diversity: Tensor, share: float, *, seed: int) -> RankSample:
    """Draw a share of the studies, the more diverse the likelier (DEER eq. 5).

    Studies are ranked by diversity, the largest first, ties in an order drawn by the seed. Then
    ⌊share·S + ½⌋ of them, at least one, are drawn one after another without replacement, each time
    with probability proportional to 1 / ln(rank + 1) among those left; rank 1 gives ln 2. A study's
    own draws depend on the seed and its index alone. The same on every device, bit for bit.

    Args:
        diversity: [S] floating point, finite.
        share: in (0, 1], 0.2 in the paper.
        seed: any integer of 64 bits.

    Raises:
        TypeError: diversity is not floating point, or share or seed no number.
        ValueError: a shape or an option is wrong, or a diversity is not finite (on a GPU a device
            assertion, or this error under RRGKERN_CHECK=1).
    """
    check_tensors(diversity=diversity)
    if not diversity.is_floating_point():
        raise TypeError(f"diversity is {diversity.dtype}, wanted floating point")
    if diversity.ndim != 1:
        raise ValueError(f"diversity is {list(diversity.shape)}, wanted [S], one per study")
    check_number("share", share)
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, wanted 0 < share <= 1")
    if not hasattr(seed, "__index__"):  # NumPy's integers have it too
        raise TypeError(f"seed is {seed!r}, wanted an integer of 64 bits")
    seed = int(seed)
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(f"seed is {seed}, wanted an integer of 64 bits")
    studies = diversity.shape[0]
    count = min(studies, max(1, math.floor(share * studies + 0.5)))
    signed = seed - (1 << 64) if seed >= 1 << 63 else seed
    return RankSample(*rank_sample_op(diversity.detach().double().contiguous(), signed, count))


def deviations(samples: int) -> tuple[list[int], list[int], list[float]]:
    """Split sqrt(n (K − n)) into factor[n] · roots[radical[n]] for n = 0, ..., K.

    The roots are of different numbers without a square in them, so no two sums of such terms are
    equal unless their factors are: diversities tie exactly where they are equal as real numbers.
    """
    parts = [without_square(n * (samples - n)) for n in range(samples + 1)]
    radicals = sorted({radical for _, radical in parts})
    places = {radical: place for place, radical in enumerate(radicals)}
    return (
        [factor for factor, _ in parts],
        [places[radical] for _, radical in parts],
        [math.sqrt(radical) for radical in radicals],
    )


def without_square(n: int) -> tuple[int, int]:
    """Split n into (a, b), n = a² · b without a square in b."""
    factor, radical, d = 1, n, 2
    while d * d <= radical:
        while radical and radical % (d * d) == 0:
            factor, radical = factor * d, radical // (d * d)
        d += 1
    return (factor, radical) if n else (0, 1)
