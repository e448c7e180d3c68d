"""Draw further prompts until enough groups have differing rewards (DAPO's dynamic sampling).

A group whose members all earn the same has advantages of 0 and teaches nothing. With `rl.resample`
a step draws up to so many further rounds of `rl.prompts` prompts, until `rl.prompts` groups differ;
those are trained on, in the order they were drawn in, and the others are left out (DAPO, eq. 11 and
its algorithm 1). Aggregation then divides by what stays: a step's gradient is that of a full batch.
Without `rl.resample` groups of equal rewards count in the divisor and add nothing, as in GRPO.
Where the rounds end before enough groups differ, those that do are the batch; where none does, the
first round is, unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rrgtrain.train.batch import Batch, by_group, joined


def differing(batch: Batch) -> list[int]:
    """Find the groups whose scored members differ in what is compared."""
    rows = by_group(batch, np.stack([batch.scores[name] for name in batch.compared], 1))
    return [b for b, values in enumerate(rows) if len(values) and (values != values[0]).any()]


def until_differing(draw: Callable[[int], Batch], wanted: int, rounds: int) -> Batch:
    """Draw batches until `wanted` groups differ, at most `rounds` after the first; keep those.

    draw: gives the batch of a round, counted from 0. `counts` of the result says how many rounds
    there were and how many groups were drawn and left out; `sampled` holds all that were drawn.
    """
    batches = [draw(0)]
    while len(batches) <= rounds and sum(len(differing(b)) for b in batches) < wanted:
        batches.append(draw(len(batches)))
    drawn = joined(batches)
    kept = differing(drawn)[:wanted]
    batch = only(drawn, kept) if kept else batches[0]
    counts = {
        "resample/rounds": float(len(batches) - 1),
        "resample/left_out": float(len(drawn.groups) - len(batch.groups)),
        "resample/equal": float(len(drawn.groups) - len(differing(drawn))),
    }
    return replace(batch, sampled=drawn.sampled, counts={**drawn.counts, **counts})


def only(batch: Batch, chosen: list[int]) -> Batch:
    """The groups `chosen` of a batch that has rewards and no objective yet."""
    return replace(
        batch,
        groups=[batch.groups[b] for b in chosen],
        scores={
            name: np.concatenate([by_group(batch, values)[b] for b in chosen])
            for name, values in batch.scores.items()
        },
        notes={
            name: list(itertools.chain(*(by_group(batch, notes)[b] for b in chosen)))
            for name, notes in batch.notes.items()
        },
    )
