"""Choose the studies of a step: epochs of seeded permutations, cut into batches.

The order depends on nothing but the seed and the step, so a resumed run sees what the
uninterrupted one would have seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from rrgdata.study import Study
from rrgtrain.state.identity import digest_of


def batch_indices(count: int, batch: int, step: int, seed: int) -> list[int]:
    """Indices in [0, count) of the `step`-th batch; batches run on across epoch borders."""
    begin = step * batch
    chosen: list[int] = []
    while len(chosen) < batch:
        epoch, offset = divmod(begin + len(chosen), count)
        order = np.random.default_rng((seed, epoch)).permutation(count)
        chosen.extend(int(i) for i in order[offset : offset + batch - len(chosen)])
    return chosen


def order_of(studies: Sequence[Study], batch: int, before: str | None = None) -> str:
    """Digest what an order depends on; warn where it is not as `before` a resume."""
    now = digest_of([batch, *(study.id for study in studies)])
    if before not in (None, now):
        warnings.warn(
            "the training studies, or how many a step reads, are not those of before the resume: "
            "of this epoch, some studies come again and some are left out",
            stacklevel=2,
        )
    return now
