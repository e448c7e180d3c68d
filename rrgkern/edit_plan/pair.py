"""A report pair in the form the editing rules work on.

Sets of entities are bit masks: bit u stands for entity u of the pair, those of the edited report
first. Closeness, agreement and opposition never change while a report is edited, since entities
travel with their sentence; only the set that the report holds does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import cat

from rrgkern.cosines import cosines, lanes_of
from rrgkern.edit_plan.types import SentenceEntities


@dataclass(frozen=True)
class Sentence:
    """A sentence under edit: its text key and the entities it holds, as a mask."""

    key: int
    entities: int


@dataclass(frozen=True)
class Pair:
    """A report pair, ready for the rules.

    Index e or u: entity of the pair; j: reference sentence.
    `agree[e]`, `oppose[e]`: reference entities within tau of e whose presence equals, opposes e's.
    `near[e]`: every entity within tau of e. `spurious`: entities of no agreement in the reference.
    """

    report: list[Sentence]
    reference: list[Sentence]
    entity_key: list[int]
    cosine: list[list[float]]
    near: list[int]
    agree: list[int]
    oppose: list[int]
    spurious: int
    wanted: int  # the reference's entities


def read_pair(x: SentenceEntities, y: SentenceEntities, r: int, tau: float) -> Pair:
    """Read report pair r with its masks, without the entities of presence -1.

    Equal text means equal entities here: a sentence that occurs in the reference holds what its
    first occurrence there holds, also in the edited report. So an extractor that judges a
    sentence by its context cannot make a verbatim copy of the reference look wrong.
    """
    y_keys, y_rows = read_report(y, r)
    first: dict[int, int] = {}
    for j, key in enumerate(y_keys):
        first.setdefault(key, j)
    y_rows = [y_rows[j] if first[key] == j else [] for j, key in enumerate(y_keys)]
    x_keys, x_rows = read_report(x, r)
    x_rows = [[] if key in first else rows for key, rows in zip(x_keys, x_rows, strict=True)]

    rows_x = [row for rows in x_rows for row in rows]
    rows_y = [row for rows in y_rows for row in rows]
    x_masks, y_masks = numbered(x_rows, 0), numbered(y_rows, len(rows_x))
    reference = [Sentence(key, y_masks[first[key]]) for key in y_keys]
    report = [
        Sentence(key, y_masks[first[key]] if key in first else mask)
        for key, mask in zip(x_keys, x_masks, strict=True)
    ]

    presence = x.presence[rows_x].tolist() + y.presence[rows_y].tolist()
    entity_key = x.key[rows_x].tolist() + y.key[rows_y].tolist()
    lanes = lanes_of(cat([x.embedding[rows_x], y.embedding[rows_y]]))
    cosine = cosines(lanes, lanes)
    near = [mask_where(row, 1) for row in (cosine > tau).tolist()]
    present = mask_where(presence, 1)
    absent = mask_where(presence, 0)
    wanted = union(y_masks)
    sides = [(present, absent) if p == 1 else (absent, present) for p in presence]
    agree = [n & same & wanted for n, (same, _) in zip(near, sides, strict=True)]
    oppose = [n & other & wanted for n, (_, other) in zip(near, sides, strict=True)]
    spurious = mask_where([int(a != 0) for a in agree], 0)
    return Pair(
        report, reference, entity_key, cosine.tolist(), near, agree, oppose, spurious, wanted
    )


def read_report(z: SentenceEntities, r: int) -> tuple[list[int], list[list[int]]]:
    """Read sentence keys and, for each sentence, the entity rows that take part."""
    start, end = z.sentence_offsets[r : r + 2].tolist()
    keys = z.sentence_key[start:end].tolist()
    rows: list[list[int]] = [[] for _ in keys]
    start, end = z.entity_offsets[r : r + 2].tolist()
    sentences = z.entity_sentence[start:end].tolist()
    presence = z.presence[start:end].tolist()
    for row, i, p in zip(range(start, end), sentences, presence, strict=True):
        if p >= 0:
            rows[i].append(row)
    return keys, rows


def numbered(rows: list[list[int]], start: int) -> list[int]:
    """Make one mask per sentence, entities numbered from `start` on, sentence by sentence."""
    masks = []
    for sentence in rows:
        masks.append(((1 << len(sentence)) - 1) << start)
        start += len(sentence)
    return masks


def mask_where(values: list[int], wanted: int) -> int:
    """Make the mask of the places where `values` holds `wanted`."""
    return sum(1 << u for u, value in enumerate(values) if value == wanted)


def union(masks: Iterable[int]) -> int:
    """Join masks into one."""
    total = 0
    for mask in masks:
        total |= mask
    return total


def members(mask: int) -> list[int]:
    """List the numbers of the bits set, in rising order."""
    return [u for u in range(mask.bit_length()) if mask >> u & 1]
