"""Test a difference between two systems by swapping their reports of the same studies.

Were the systems equal, either could have written either report of a study. So the difference is
held against those of all ways to swap: exact, and free of what a bootstrap of few studies lacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from rrgclinical.metrics.parts import Scores, chunks, joined

LEAST_DIFFERING = 6
"""Rows that must differ for a p-value: of five that all point one way p is 2 / 2**5 = 0.06."""


def swap_p_values(
    first: Scores, second: Scores, resamples: int, seed: int
) -> dict[str, float | None]:
    """Compute a two-sided p of each metric that both have.

    Where the rows that differ in a metric can be swapped in no more than `resamples` ways, all are
    tried; else so many are drawn, and one is added to both counts. None where fewer than
    `LEAST_DIFFERING` rows differ.
    """
    swaps = _Swaps(first, second)
    alike: dict[bytes, list[str]] = {}
    for name, rows in swaps.rows_that_differ().items():
        alike.setdefault(rows.tobytes(), []).append(name)
    p_values: dict[str, float | None] = dict.fromkeys(swaps.observed)
    often = []
    for mask, names in alike.items():
        rows = np.flatnonzero(np.frombuffer(mask, dtype=bool))
        if len(rows) < LEAST_DIFFERING:
            continue
        if 2 ** len(rows) > resamples:
            often += names
            continue
        every = np.array(list(itertools.product((0.0, 1.0), repeat=len(rows))))
        ways = swaps.differences(every, rows)
        p_values |= {name: float(swaps.as_large(name, ways[name]).mean()) for name in names}
    if often:
        rng, count = np.random.default_rng((seed, 2)), swaps.rows
        drawn = joined(
            swaps.differences(rng.integers(0, 2, (chunk, count), dtype=np.int8) * 1.0)
            for chunk in chunks(count, resamples)
        )
        for name in often:
            large = int(swaps.as_large(name, drawn[name]).sum())
            p_values[name] = (large + 1) / (resamples + 1)
    return p_values


class _Swaps:
    """Two systems whose reports may be swapped in `rows` rows, those that differ.

    observed: second minus first as they are, by name.
    """

    def __init__(self, first: Scores, second: Scores) -> None:
        others = {part.key: part.statistics for part in second.parts}
        self.parts = [part for part in first.parts if part.key in others]
        self.before = [part.statistics.sum(0) for part in self.parts]
        self.after = [others[part.key].sum(0) for part in self.parts]
        gaps = [part.statistics - others[part.key] for part in self.parts]
        differing = np.any([(gap != 0).any(1) for gap in gaps], axis=0)
        self.gaps = [gap[differing] for gap in gaps]
        self.rows = int(differing.sum())
        self.whole = self._metrics([np.zeros((1, len(sums))) for sums in self.before])
        self.observed = {name: float((new - old)[0]) for name, (old, new) in self.whole.items()}

    def rows_that_differ(self) -> dict[str, np.ndarray]:
        """Find by metric the rows, bool `[rows]`, whose swap alone changes either system's."""
        return {
            name: np.any(
                [
                    ~np.isclose(swapped, whole, rtol=1e-12, atol=0.0)
                    for swapped, whole in zip(both, self.whole[name], strict=True)
                ],
                axis=0,
            )
            for name, both in self._metrics(self.gaps).items()
        }

    def differences(
        self, swapped: np.ndarray, rows: np.ndarray | slice = slice(None)
    ) -> dict[str, np.ndarray]:
        """Compute second minus first `[B]` by name; swapped is 0 or 1, `[B, rows]`."""
        both = self._metrics([swapped @ gap[rows] for gap in self.gaps])
        return {name: new - old for name, (old, new) in both.items()}

    def as_large(self, name: str, differences: np.ndarray) -> np.ndarray:
        """Find differences no smaller than the observed one; bool."""
        # sums in another order differ in their last bits
        return np.abs(differences) >= abs(self.observed[name]) * (1.0 - 1e-9)

    def _metrics(self, moved: Sequence[np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Both systems' `[B]` by name, when `moved` `[B, K]` has gone from first to second."""
        metrics: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for part, move, before, after in zip(
            self.parts, moved, self.before, self.after, strict=True
        ):
            old, new = part.of_sums(before - move), part.of_sums(after + move)
            metrics |= {name: (old[name], new[name]) for name in old}
        return metrics
