"""Best cosines between the entities of two reports, pair by pair, and the score made of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rrgkern.entity_match.cosines import cosines, lanes_of
from rrgkern.entity_match.types import ANY, ReportEntities

NO_ENTITIES = 0.5  # RaTEScore's value where a report has none


def entity_match_reference(
    x: ReportEntities, y: ReportEntities, weight: Tensor, crossed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(cosine_x, index_x, cosine_y, index_y, scores [R, 3]: precision, recall, score).

    `weight` [K, K] and `crossed` [K, K] weigh a match by the kinds of the two entities: the share
    of the mean it stands for, and what its cosine counts where their presence is opposite.
    """
    bounds_x, bounds_y = x.offsets.tolist(), y.offsets.tolist()
    lanes_x, lanes_y = lanes_of(x.embedding), lanes_of(y.embedding)
    best_x, best_y = empty_best(x.presence), empty_best(y.presence)
    largest = max(float(table.abs().max()) for table in (weight, crossed))
    scores = torch.full((len(bounds_x) - 1, 3), NO_ENTITIES, device=x.presence.device)
    for r in range(len(scores)):
        rows = slice(*bounds_x[r : r + 2])
        columns = slice(*bounds_y[r : r + 2])
        if rows.start == rows.stop or columns.start == columns.stop:
            continue
        cosine = cosines(lanes_x[rows], lanes_y[columns])
        sides = (
            (best_x, rows, cosine, x, columns, y),
            (best_y, columns, cosine.T, y, rows, x),
        )
        means = []
        for (values, indices), mine, matrix, own, theirs, other in sides:
            presence = own.presence[mine]
            values[mine], indices[mine] = best_of(matrix, presence, other.presence[theirs])
            shares, gains = heaviest(
                matrix, values[mine, ANY], own, mine, other, theirs, weight, crossed
            )
            means.append(weighted_mean(values[mine, ANY], gains, shares, largest))
        precision, recall = means
        both = precision + recall
        score = 2 * precision * recall / both if both != 0 else 0.0
        scores[r] = torch.tensor([precision, recall, score], dtype=torch.float64)
    return *best_x, *best_y, scores


def empty_best(presence: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and indices of entities with nothing to match."""
    shape = (len(presence), 3)
    return (
        presence.new_full(shape, -torch.inf, dtype=torch.float32),
        presence.new_full(shape, -1, dtype=torch.int32),
    )


def best_of(cosine: Tensor, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Best of each row [n, m] among any, equal and opposite presence: values, indices [n, 3]."""
    equal = (mine[:, None] == theirs) & (mine[:, None] >= 0)
    eligible = torch.stack([torch.ones_like(equal), equal, opposite(mine[:, None], theirs)], 1)
    values, indices = cosine[:, None].masked_fill(~eligible, -torch.inf).max(-1)
    return values, indices.masked_fill(~eligible.any(-1), -1).int()


def opposite(mine: Tensor, theirs: Tensor) -> Tensor:
    """Where one is present (1) and the other absent (0); a -1 on either side is never opposite."""
    return (mine >= 0) & (theirs >= 0) & (mine != theirs)


def heaviest(
    cosine: Tensor,
    best: Tensor,
    own: ReportEntities,
    mine: slice,
    other: ReportEntities,
    theirs: slice,
    weight: Tensor,
    crossed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Share and gain [n] of each entity's match: of equal cosines one that does not cross presence,
    of those the heaviest. So the place of an entity in its report never changes a score."""
    kinds = own.kinds()[mine, None].long(), other.kinds()[theirs].long()
    crosses = opposite(own.presence[mine, None], other.presence[theirs])
    shares = weight[kinds]
    gains = torch.where(crosses, crossed[kinds], shares)
    left = cosine == best[:, None]
    for rank in (-crosses.float(), shares, gains):
        rank = rank.masked_fill(~left, -torch.inf)
        left &= rank == rank.amax(1, keepdim=True)
    chosen = left.int().argmax(1, keepdim=True)
    return shares.gather(1, chosen)[:, 0], gains.gather(1, chosen)[:, 0]


def weighted_mean(cosine: Tensor, gains: Tensor, shares: Tensor, largest: float) -> float:
    """Σ cosine·gain / Σ share over the entities of one side; 0 without a share.

    The terms are rounded to a common unit, a power of two in which their number times `largest`
    stays below 2^62, and added as integers: no order of the entities changes the sum. Cosine and
    gain are fp32, so their product is exact in fp64.
    """
    scale = math.ldexp(1.0, 61 - math.frexp(largest * len(cosine))[1])
    total = sum(
        round(value * gain * scale)
        for value, gain in zip(cosine.tolist(), gains.tolist(), strict=True)
    )
    mass = sum(round(share * scale) for share in shares.tolist())
    return float(total) / float(mass) if mass != 0 else 0.0
