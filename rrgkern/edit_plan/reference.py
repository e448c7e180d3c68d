"""The editing rules of EditGRPO (section 2, rules a to e) in plain Python integers."""

from __future__ import annotations

import ctypes

from torch import Tensor

from rrgkern.edit_plan.inputs import EditOptions
from rrgkern.edit_plan.pair import Pair, Sentence, members, read_pair, union
from rrgkern.edit_plan.types import Rule, SentenceEntities, blank_script
from rrgkern.random import uniform_below

UNITS = 2.0**44  # of a cosine, for the mean of rule (b)


def edit_plan_reference(
    x: SentenceEntities,
    y: SentenceEntities,
    seeds: Tensor,
    options: EditOptions,
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
