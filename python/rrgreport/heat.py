"""Token weights as intensities, as DEER's figure 3 shows them, with the numbers beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rrgreport.samples import WeightSample

STEPS = 5
"""Swatches of the legend."""


@dataclass(frozen=True)
class HeatScale:
    """From weight to shade: `low` is blank, `high` the strongest."""

    low: float
    high: float

    def shade(self, weight: float) -> float:
        """0 to 1; 0 everywhere where no weight differs."""
        if self.high <= self.low:
            return 0.0
        return min(1.0, max(0.0, (weight - self.low) / (self.high - self.low)))

    def legend(self) -> list[tuple[str, str]]:
        """(shade, weight) of the swatches, lightest first."""
        shades = [i / (STEPS - 1) for i in range(STEPS)]
        return [(f"{s:.3f}", f"{self.low + s * (self.high - self.low):.2f}") for s in shades]


def heat_scale(samples: Sequence[WeightSample]) -> HeatScale:
    """Make one scale for all samples, to compare them; 1 is blank (DiTPO, eq. 6)."""
    weights = [weight for sample in samples for _, weight in sample.pieces]
    return HeatScale(min([1.0, *weights]), max([1.0, *weights]))


def shaded(pieces: Sequence[tuple[str, float]], scale: HeatScale) -> list[tuple[str, str, str]]:
    """(text, shade, what a pointer over it is told) of each piece."""
    return [(text, f"{scale.shade(weight):.3f}", f"weight {weight:.3f}") for text, weight in pieces]


def heaviest_words(pieces: Sequence[tuple[str, float]], count: int = 6) -> list[tuple[str, str]]:
    """The words of the heaviest tokens, each once, with the weight of its heaviest token.

    For who cannot see the shades. A token that is a part of a word stands for the whole of it.
    """
    words: list[tuple[str, float]] = []
    for text, weight in pieces:
        head = text[:1]
        if words and head and not head.isspace() and not words[-1][0][-1:].isspace():
            before, heavier = words.pop()
            words.append((before + text, max(heavier, weight)))
        else:
            words.append((text, weight))
    best: dict[str, float] = {}
    for text, weight in words:
        word = text.strip().strip(".,;:")
        if word:
            best[word] = max(best.get(word, weight), weight)
    ranked = sorted(best.items(), key=lambda item: -item[1])[:count]
    return [(word, f"{weight:.2f}") for word, weight in ranked]
