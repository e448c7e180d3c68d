"""Choose the studies of a step: epochs of seeded permutations, cut into batches.

The order depends on nothing but the seed and the step, so a resumed run sees what the
uninterrupted one would have seen.
"""

from __future__ import annotations

import numpy as np


def batch_indices(count: int, batch: int, step: int, seed: int) -> list[int]:
    """Indices in [0, count) of the `step`-th batch; batches run on across epoch borders."""
    begin = step * batch
    chosen: list[int] = []
    while len(chosen) < batch:
        epoch, offset = divmod(begin + len(chosen), count)
        order = np.random.default_rng((seed, epoch)).permutation(count)
        chosen.extend(int(i) for i in order[offset : offset + batch - len(chosen)])
    return chosen
