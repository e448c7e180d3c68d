"""Draw studies with labels as even as possible (OraPO, section 4.1)."""

from __future__ import annotations

import numpy as np


def balanced(positive: np.ndarray, count: int, seed: int) -> list[int]:
    """Draw `count` rows of `positive` whose columns are as near to equal as possible.

    Each draw takes a study with the label that the studies drawn so far have least (ties to the
    lower column), at random among those that are left; studies without any label come last.

    Args:
        positive: bool `[S, C]`, which labels each study has.
        count: how many to draw, at most S.
        seed: of the draws.

    Returns:
        Indices in ascending order.

    Raises:
        ValueError: more studies asked for than there are.
    """
    studies, columns = positive.shape
    if not 0 <= count <= studies:
        raise ValueError(f"count is {count} of {studies} studies; wanted 0 to {studies}")
    order = np.random.default_rng(seed).permutation(studies)
    queues = [[int(i) for i in order[::-1] if positive[i, c]] for c in range(columns)]
    rest = [int(i) for i in order[::-1] if not positive[i].any()]
    taken = np.zeros(studies, dtype=bool)
    have = np.zeros(columns, dtype=np.int64)
    chosen: list[int] = []
    while len(chosen) < count:
        for queue in queues:
            while queue and taken[queue[-1]]:
                queue.pop()
        open_columns = [c for c in range(columns) if queues[c]]
        if open_columns:
            study = queues[min(open_columns, key=lambda c: (have[c], c))].pop()
        else:
            study = rest.pop()
        taken[study] = True
        have += positive[study]
        chosen.append(study)
    return sorted(chosen)
