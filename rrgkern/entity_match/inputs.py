"""Arguments of the entity match's op, and the checks on their values."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rrgkern.checks import check_offsets, check_range, check_unit_rows, check_weights
from rrgkern.entity_match.types import ReportEntities


class MatchTables(NamedTuple):
    """Weights [K, K] fp32 of a match by the kinds of its two entities.

    Attributes:
        weight: the share of the mean that a match stands for.
        crossed: what its cosine counts where the presence is opposite.
    """

    weight: Tensor
    crossed: Tensor


class EntityMatchInputs(NamedTuple):
    """Arguments of `rrgkern::entity_match`."""

    x_offsets: Tensor
    x_presence: Tensor
    x_embedding: Tensor
    x_kind: Tensor
    y_offsets: Tensor
    y_presence: Tensor
    y_embedding: Tensor
    y_kind: Tensor
    tables: MatchTables

    @property
    def x(self) -> ReportEntities:
        return ReportEntities(*self[:4])

    @property
    def y(self) -> ReportEntities:
        return ReportEntities(*self[4:8])

    def check(self) -> None:
        """Raise ValueError where an input breaks a promise, and name it."""
        weight, crossed = self.tables
        for name, z in (("x", self.x), ("y", self.y)):
            check_offsets(f"{name}.offsets", z.offsets, len(z.presence), "entities")
            check_range(f"{name}.presence", z.presence, -1, 1)
            check_range(f"{name}.kind", z.kinds(), 0, len(weight) - 1)
        check_weights("affinity", weight)
        check_weights("affinity * neg_weight", crossed)
        check_unit_rows("x.embedding", self.x_embedding)
        check_unit_rows("y.embedding", self.y_embedding)
