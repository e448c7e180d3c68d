"""Best cosines between the entities of two reports, and their score, in plain PyTorch."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.cosines import cosines, lanes_of
from rrgkern.entity_match.inputs import ANY, MatchTables, ReportEntities

NO_ENTITIES = 0.5  # RaTEScore's value where a report has none


class Side(NamedTuple):
    """Presence and kind [n] of the entities of one report."""

    presence: Tensor
    kind: Tensor


def side_of(z: ReportEntities, rows: slice) -> Side:
    """Take the side of the report whose entities are `rows`."""
    return Side(z.presence[rows], z.kinds()[rows])


def entity_match_reference(
    x: ReportEntities, y: ReportEntities, tables: MatchTables
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(cosine_x, index_x, cosine_y, index_y, scores [R, 3]: precision, recall, score)."""
    bounds_x, bounds_y = x.offsets.tolist(), y.offsets.tolist()
    lanes_x, lanes_y = lanes_of(x.embedding), lanes_of(y.embedding)
    best_x, best_y = empty_best(x.presence), empty_best(y.presence)
    largest = max(float(table.abs().max()) for table in tables)
    scores = torch.full((len(bounds_x) - 1, 3), NO_ENTITIES, device=x.presence.device)
    for r in range(len(scores)):
        rows = slice(*bounds_x[r : r + 2])
        columns = slice(*bounds_y[r : r + 2])
        if rows.start == rows.stop or columns.start == columns.stop:
            continue
        cosine = cosines(lanes_x[rows], lanes_y[columns])
        side_x, side_y = side_of(x, rows), side_of(y, columns)
        sides = (
            (best_x, rows, cosine, side_x, side_y),
            (best_y, columns, cosine.T, side_y, side_x),
        )
        means = []
        for (values, indices), mine, matrix, own, other in sides:
            values[mine], indices[mine] = best_of(matrix, own.presence, other.presence)
            shares, gains = heaviest(matrix, values[mine, ANY], own, other, tables)
            means.append(weighted_mean(values[mine, ANY], gains, shares, largest))
        precision, recall = means
        both = precision + recall
        score = 2 * precision * recall / both if both != 0 else 0.0
        scores[r] = torch.tensor([precision, recall, score], dtype=torch.float64)
    return *best_x, *best_y, scores


def empty_best(presence: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate cosines and indices of entities with nothing to match."""
    shape = (len(presence), 3)
    return (
        presence.new_full(shape, -torch.inf, dtype=torch.float32),
        presence.new_full(shape, -1, dtype=torch.int32),
    )


def best_of(cosine: Tensor, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Find each row's best [n, 3] for any, equal and opposite presence."""
    equal = (mine[:, None] == theirs) & (mine[:, None] >= 0)
    eligible = torch.stack([torch.ones_like(equal), equal, opposite(mine[:, None], theirs)], 1)
    values, indices = cosine[:, None].masked_fill(~eligible, -torch.inf).max(-1)
    return values, indices.masked_fill(~eligible.any(-1), -1).int()


def opposite(mine: Tensor, theirs: Tensor) -> Tensor:
    """Mark where one is present (1) and the other absent (0), neither -1."""
    return (mine >= 0) & (theirs >= 0) & (mine != theirs)


def heaviest(
    cosine: Tensor, best: Tensor, own: Side, other: Side, tables: MatchTables
) -> tuple[Tensor, Tensor]:
    """Choose each entity's match, and return its share and gain [n].

    Among equal cosines one that does not cross presence counts, and then the heaviest: the place of
    an entity in its report never changes a score.
    """
    kinds = own.kind[:, None].long(), other.kind.long()
    crosses = opposite(own.presence[:, None], other.presence)
    shares = tables.weight[kinds]
    gains = torch.where(crosses, tables.crossed[kinds], shares)
    left = cosine == best[:, None]
    for rank in (-crosses.float(), shares, gains):
        rank = rank.masked_fill(~left, -torch.inf)
        left &= rank == rank.amax(1, keepdim=True)
    chosen = left.int().argmax(1, keepdim=True)
    return shares.gather(1, chosen)[:, 0], gains.gather(1, chosen)[:, 0]


def weighted_mean(cosine: Tensor, gains: Tensor, shares: Tensor, largest: float) -> float:
    """Compute Σ cosine·gain / Σ share over one side's entities; 0 without a share.

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
