"""Records that an edit plan reads and returns."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor


class Rule(IntEnum):
    """The rule that made an edit; EditGRPO section 2 letters them (a) to (e)."""

    NONE = 0  # no edit stands in this place of the script
    CONFLICT = 1  # (a)
    REPLACEMENT = 2  # (b)
    DELETION = 3  # (c)
    ADDITION = 4  # (d)
    FILL = 5  # (e), an empty report
    DELETION_OF_COPIES = 6  # released code only: the sentence and every copy of it


class SentenceEntities(NamedTuple):
    """R reports as sentences and the entities in them; all tensors on one device.

    Attributes:
        sentence_offsets: [R+1] int64, report r holds sentences [offsets[r], offsets[r+1]).
        sentence_key: [T] int64, equal exactly where two sentences say the same (`sentence_body`:
            list numbers and the stop at the end do not count). Keys are compared between the two
            reports of a pair, so one numbering serves a whole batch.
        entity_offsets: [R+1] int64, report r holds entities [offsets[r], offsets[r+1]).
        entity_sentence: [E] int32 or int64, the sentence of the entity, counted in its report.
        presence: [E] int8: 1 present, 0 absent, -1 takes no part (its embedding is never read).
        key: [E] int64, equal exactly where text and type of two entities are equal.
        embedding: [E, d] fp32, fp16 or bf16, unit rows.
        kind: [E] int8, row of the affinity table; read by `rule="released"` only.
    """

    sentence_offsets: Tensor
    sentence_key: Tensor
    entity_offsets: Tensor
    entity_sentence: Tensor
    presence: Tensor
    key: Tensor
    embedding: Tensor
    kind: Tensor | None = None

    def kinds(self) -> Tensor:
        """Return `kind`, or one kind for all where it is None."""
        return torch.zeros_like(self.presence) if self.kind is None else self.kind


class Edit(NamedTuple):
    """One edit. Positions are -1 where the rule needs none.

    `sentence` counts in the list as it stands when the edit is applied: the sentence replaced or
    deleted, or the place an added one takes. `reference` counts in the reference report. A
    deletion with a reference emptied the report, and that reference sentence takes its place.
    """

    rule: Rule
    sentence: int
    reference: int


class EditScript(NamedTuple):
    """Edits of R report pairs in the order of application, `count[r]` in row r.

    Attributes:
        rule: [R, M] int8, values of `Rule`; 0 from place count[r] on.
        sentence: [R, M] int32, see `Edit`; -1 where there is none.
        reference: [R, M] int32, see `Edit`; -1 where there is none.
        count: [R] int32.
    """

    rule: Tensor
    sentence: Tensor
    reference: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody asks a script for

    def of(self, report: int) -> list[Edit]:
        """Read the edits of one report pair from the device, as Python values."""
        count = int(self.count[report])
        columns = (field[report, :count].tolist() for field in self[:3])
        return [Edit(Rule(rule), i, j) for rule, i, j in zip(*columns, strict=True)]


Script = tuple[Tensor, Tensor, Tensor, Tensor]


def blank_script(seeds: Tensor, width: int) -> Script:
    """Allocate the tensors of a script without edits, for the reports of `seeds` [R]."""
    shape = (seeds.shape[0], width)
    return (
        seeds.new_zeros(shape, dtype=torch.int8),
        seeds.new_full(shape, -1, dtype=torch.int32),
        seeds.new_full(shape, -1, dtype=torch.int32),
        seeds.new_zeros(shape[:1], dtype=torch.int32),
    )
