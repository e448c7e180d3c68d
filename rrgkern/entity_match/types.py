"""Records that an entity match reads and returns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

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
