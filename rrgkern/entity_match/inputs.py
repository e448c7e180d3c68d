"""Records that an entity match reads and returns, and the arguments of its op."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_offsets, check_range, check_unit_rows, check_weights

# Columns of `EntityMatch.cosine_*` and `index_*`: among which entities the best was sought.
ANY, EQUAL, OPPOSITE = 0, 1, 2


class ReportEntities(NamedTuple):
    """The entities of R reports, ragged; all tensors on one device.

    Attributes:
        offsets: [R+1] int64, report r holds entities [offsets[r], offsets[r+1]).
        presence: [E] int8: 1 present, 0 absent, -1 neither (anatomy).
        embedding: [E, d] fp32, fp16 or bf16, unit rows.
        kind: [E] int8, row of the affinity table; needed with one only.
    """

    offsets: Tensor
    presence: Tensor
    embedding: Tensor
    kind: Tensor | None = None

    def kinds(self) -> Tensor:
        """Return `kind`, or one kind for all where it is None."""
        return torch.zeros_like(self.presence) if self.kind is None else self.kind


class EntityMatch(NamedTuple):
    """Best matches of every entity in the other report, and RaTEScore made of them.

    The columns are ANY (every entity), EQUAL and OPPOSITE (those of equal or opposite presence;
    an entity of presence -1 has neither, and is neither for others).

    Attributes:
        cosine_x: [Ex, 3] fp32, best cosine of each entity of x; -inf where nothing was eligible.
        index_x: [Ex, 3] int32, the entity of y it belongs to, counted in its report; ties go to
            the lowest; -1 where nothing was eligible.
        cosine_y, index_y: [Ey, 3], the same from y to x.
        precision, recall: [R] fp32, weighted mean of the best cosines over the entities of x, of y.
        score: [R] fp32, harmonic mean of the two; all three are 0.5 where x or y has no entity.
    """

    cosine_x: Tensor
    index_x: Tensor
    cosine_y: Tensor
    index_y: Tensor
    precision: Tensor
    recall: Tensor
    score: Tensor


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
