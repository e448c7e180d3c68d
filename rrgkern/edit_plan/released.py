"""The edit that EditGRPO's published code makes, for reproducing its runs.

It differs from the paper's rules. Two entities are alike where cosine times type affinity (times
`neg_weight` across a negation) reaches tau; conflicts are found and then ignored; every entity
counts, anatomy too; a replacement may put in a sentence that the report already holds; a deletion
takes every copy; an addition is drawn over entities, not sentences, and is dropped where the
report holds that sentence. So a report equal to its reference is edited: with RaTEScore's
affinities no two findings of a kind are alike. White space is kept here, where that code joins
the sentences with single spaces.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rrgkern.cosines import cosines, lanes_of
from rrgkern.edit_plan.inputs import ReleasedOptions
from rrgkern.edit_plan.types import Rule, SentenceEntities
from rrgkern.random import uniform_below

NO_EDIT = (Rule.NONE, -1, -1)


@dataclass(frozen=True)
class Report:
    """One report: its sentence texts as keys, and of each entity sentence, presence, kind, key."""

    texts: list[int]
    sentence: list[int]
    presence: list[int]
    kind: list[int]
    key: list[int]

    def text_of(self, entity: int) -> int:
        """Return the key of the sentence that holds the entity."""
        return self.texts[self.sentence[entity]]


def released_reference(
    x: SentenceEntities, y: SentenceEntities, seeds: Tensor, options: ReleasedOptions
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(rule [R, 1] int8, sentence and reference [R, 1] int32, count [R] int32)."""
    edits = []
    for r, seed in enumerate(seeds.tolist()):
        (report, rows), (reference, columns) = read_report(x, r), read_report(y, r)
        cosine = cosines(lanes_of(x.embedding[rows]), lanes_of(y.embedding[columns])).tolist()
        edits.append(released_edit(report, reference, cosine, options, seed))
    script = torch.tensor(edits, dtype=torch.int32, device=seeds.device).reshape(-1, 3)
    rule, sentence, place = script.split(1, dim=1)
    return rule.to(torch.int8), sentence.clone(), place.clone(), (rule[:, 0] != Rule.NONE).int()


def released_edit(
    x: Report, y: Report, cosine: list[list[float]], options: ReleasedOptions, seed: int
) -> tuple[Rule, int, int]:
    """Choose the one edit of a report pair, in the order replace, delete, add."""
    _, tau, tau_replace, neg_weight = options
    affinity: list[list[float]] = options.affinity.tolist()
    if not x.texts:
        return NO_EDIT

    def alike(e: int, f: int) -> float:
        crosses = {x.presence[e], y.presence[f]} == {0, 1}
        return cosine[e][f] * affinity[x.kind[e]][y.kind[f]] * (neg_weight if crosses else 1.0)

    score = [[alike(e, f) for f in range(len(y.key))] for e in range(len(x.key))]
    spurious = [e for e, row in enumerate(score) if not any(s >= tau for s in row)]
    contradicted = set()
    for e, row in enumerate(score):
        f = max(range(len(row)), key=row.__getitem__, default=-1)
        if f >= 0 and {x.presence[e], y.presence[f]} == {0, 1} and cosine[e][f] >= tau:
            contradicted.add((y.key[f], y.text_of(f)))
    missing = [
        f
        for f in range(len(y.key))
        if not any(row[f] >= tau for row in score) and (y.key[f], y.text_of(f)) not in contradicted
    ]

    groups: dict[int, list[int]] = {}
    for f in range(len(y.key)):
        groups.setdefault(y.text_of(f), []).append(f)
    for e in spurious:
        text = x.text_of(e)
        best = {
            other: max(0.0, *(cosine[e][f] for f in group))
            for other, group in groups.items()
            if other != text
        }
        if best and max(best.values()) >= tau_replace:
            chosen = max(best, key=best.__getitem__)
            return Rule.REPLACEMENT, x.texts.index(text), y.texts.index(chosen)
    if spurious:
        text = x.text_of(spurious[0])
        place, donors = x.texts.index(text), [f for f in missing if y.text_of(f) != text]
        if set(x.texts) != {text} or not donors:
            return Rule.DELETION_OF_COPIES, place, -1
        donor = donors[uniform_below(len(donors), seed, 0)]
        return Rule.DELETION_OF_COPIES, place, y.texts.index(y.text_of(donor))
    if missing:
        text = y.text_of(missing[uniform_below(len(missing), seed, 0)])
        if text not in x.texts:
            return Rule.ADDITION, len(x.texts), y.texts.index(text)
    return NO_EDIT


def read_report(z: SentenceEntities, r: int) -> tuple[Report, slice]:
    """Read report r and the rows of its entities."""
    sentences = slice(*z.sentence_offsets[r : r + 2].tolist())
    rows = slice(*z.entity_offsets[r : r + 2].tolist())
    columns = (z.entity_sentence, z.presence, z.kinds(), z.key)
    lists = (column[rows].tolist() for column in columns)
    return Report(z.sentence_key[sentences].tolist(), *lists), rows
