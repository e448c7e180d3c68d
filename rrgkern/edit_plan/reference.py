"""The editing rules of EditGRPO (section 2, rules a to e) in plain Python integers.

Sets of entities are bit masks: bit u stands for entity u of the pair, those of the edited report
first. Closeness, agreement and opposition never change while a report is edited, since entities
travel with their sentence; only the set that the report holds does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from rrgkern.cosines import cosines, lanes_of
from rrgkern.edit_plan.inputs import EditOptions
from rrgkern.edit_plan.types import Rule, SentenceEntities, blank_script
from rrgkern.random import uniform_below

UNITS = 2.0**44  # of a cosine, for the mean of rule (b)


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
    lanes = lanes_of(torch.cat([x.embedding[rows_x], y.embedding[rows_y]]))
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


def edit_plan_reference(
    x: SentenceEntities, y: SentenceEntities, seeds: Tensor, options: EditOptions
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Plan each pair: rule, sentence, reference and count of an `EditScript`."""
    rule, sentence, reference, edits_made = blank_script(seeds, options.width)
    options = options._replace(
        tau=round_fp32(options.tau), tau_replace=round_fp32(options.tau_replace)
    )
    for r, seed in enumerate(seeds.tolist()):
        pair = read_pair(x, y, r, options.tau)
        report = pair.report
        done = 0
        while options.max_edits == 0 or done < options.max_edits:
            edit = next_edit(pair, report, seed, done, options)
            if edit is None:
                break
            report = apply_edit(report, pair.reference, *edit)
            rule[r, done], sentence[r, done], reference[r, done] = edit
            done += 1
        edits_made[r] = done
    return rule, sentence, reference, edits_made


def next_edit(
    pair: Pair, report: list[Sentence], seed: int, number: int, options: EditOptions
) -> tuple[Rule, int, int] | None:
    """Choose edit `number` by the first rule that fits; None at the fixed point."""
    if not pair.wanted:
        return None
    held = union(sentence.entities for sentence in report)
    texts = {sentence.key for sentence in report}
    unused = [j for j, sentence in enumerate(pair.reference) if sentence.key not in texts]

    # (a) an entity that a reference sentence contradicts. More than one edit could undo itself for
    # ever: then what equals a reference sentence stays.
    lock = options.max_edits != 1
    reference_texts = {sentence.key for sentence in pair.reference} if lock else set()
    conflicts = []
    for i, sentence in enumerate(report):
        if sentence.key in reference_texts:
            continue
        suspects = sentence.entities
        if options.conflict_requires_spurious:
            suspects &= pair.spurious
        against = union(pair.oppose[e] for e in members(suspects))
        conflicts += [(i, j) for j in unused if against & pair.reference[j].entities]
    if conflicts:
        i, j = conflicts[uniform_below(len(conflicts), seed, number)]
        return Rule.CONFLICT, i, j

    # (b) a reference sentence about the same thing as the spurious entities
    universe = held | pair.wanted
    about = {j: union(pair.near[e] for e in members(pair.reference[j].entities)) for j in unused}
    for i, sentence in enumerate(report):
        spurious = distinct(sentence.entities & pair.spurious, pair.entity_key)
        if not spurious:
            continue
        best, best_j = -1.0, -1
        for j in unused:
            candidates = members(about[j] & universe)
            if candidates:
                mean = mean_of_best(pair.cosine, spurious, candidates)
                if best_j < 0 or mean > best:
                    best, best_j = mean, j
        if best_j >= 0 and best >= options.tau_replace:
            return Rule.REPLACEMENT, i, best_j

    # (c) deletion; a report that it empties becomes a reference sentence at once, rule (e)
    for i, sentence in enumerate(report):
        if sentence.entities & pair.spurious:
            if len(report) > 1:
                return Rule.DELETION, i, -1
            donors = missing_sentences(pair, [])
            return Rule.DELETION, i, donors[uniform_below(len(donors), seed, number)]

    # (d) what the report does not say yet; (e) likewise where it says nothing at all
    donors = missing_sentences(pair, report)
    if not donors:
        return None
    j = donors[uniform_below(len(donors), seed, number)]
    return (Rule.ADDITION, len(report), j) if report else (Rule.FILL, -1, j)


def missing_sentences(pair: Pair, report: list[Sentence]) -> list[int]:
    """List reference sentences not in `report` that hold an entity it lacks."""
    held = union(sentence.entities for sentence in report)
    texts = {sentence.key for sentence in report}
    # Closeness is symmetric, so "no entity of x agrees with e'" is read from the side of x.
    covered = union(pair.agree[e] for e in members(held))
    return [
        j
        for j, sentence in enumerate(pair.reference)
        if sentence.key not in texts and sentence.entities & ~covered
    ]


def apply_edit(
    report: list[Sentence], reference: list[Sentence], rule: Rule, i: int, j: int
) -> list[Sentence]:
    """Apply one edit to the sentence list."""
    new = [reference[j]] if j >= 0 else []
    if rule in (Rule.ADDITION, Rule.FILL):
        return report + new
    return report[:i] + new + report[i + 1 :]


def mean_of_best(cosine: list[list[float]], spurious: list[int], candidates: list[int]) -> float:
    """Average the best cosines of the spurious entities to a candidate, rounded to fp32.

    The cosines are added as integers, in units of 2^-44: the order of the entities does not matter.
    """
    total = sum(round(max(cosine[e][u] for u in candidates) * UNITS) for e in spurious)
    return round_fp32(total / (len(spurious) * UNITS))


def distinct(mask: int, entity_key: list[int]) -> list[int]:
    """List the entities in the mask, the first of each text and type."""
    first: dict[int, int] = {}
    for e in members(mask):
        first.setdefault(entity_key[e], e)
    return list(first.values())


def round_fp32(value: float) -> float:
    """Round `value` to the nearest fp32 number."""
    return ctypes.c_float(value).value
