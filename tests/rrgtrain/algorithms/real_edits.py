"""Edit real reports toward others, and read what stands at the fixed point again as text.

Each report is edited toward another with the same label vector, or the nearest where no other has
it; or toward one drawn at random, as they are written and as numbered lists. Entities and labels
are those of the offline `rules`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rrgclinical import Entities, build_extractor, build_labeller
from rrgclinical.rules import split_sentences
from rrgkern import (
    EQUAL,
    Edit,
    EditScript,
    ReportEntities,
    Rule,
    SentenceEntities,
    edit_plan,
    entity_match,
    philox_seed,
    sentence_body,
    splice,
)
from rrgkern.edit_plan import list_marker
from rrgtrain.algorithms import RULE_LETTERS, edit_reports, sentence_entities
from rrgtrain.schema import EditSettings

TAU = 0.6


@dataclass(frozen=True)
class Result:
    """Count the edits of the pairs.

    `rules` counts edits by letter; `unclean` are pairs whose fixed point holds something spurious
    or lacks something."""

    pairs: int
    exact: int
    one_edit: dict[str, int]
    unchanged: int
    fixed_point: dict[str, int]
    most_edits: int
    unclean: list[int]
    mean_score: float


def partners(labels: np.ndarray) -> np.ndarray:
    """Choose the report [R] that each one is edited toward.

    It is the next of those with the fewest other labels."""
    count = len(labels)
    distance = (labels[:, None, :] != labels[None, :, :]).sum(2)
    np.fill_diagonal(distance, labels.shape[1] + 1)
    nearest = distance == distance.min(1, keepdims=True)
    ahead = (np.arange(count)[None, :] - np.arange(count)[:, None]) % count
    return np.where(nearest, ahead, count).argmin(1)


def run(reports: list[str]) -> Result:
    """Edit each report toward its partner."""
    labels = build_labeller("rules").label(reports)
    chosen = partners(labels)
    entities = build_extractor("rules").extract(reports)
    rows = sentence_entities(entities, {})
    other = reordered(rows, torch.as_tensor(chosen))
    seeds = torch.tensor([philox_seed(0, 0, r, 0) for r in range(len(reports))])
    one = edit_plan(rows, other, seeds=seeds, tau=TAU)
    every = edit_plan(rows, other, seeds=seeds, tau=TAU, max_edits=None)
    one_edit, fixed_point = Counter(), Counter()
    for r, partner in enumerate(chosen.tolist()):
        for script, counts in ((one, one_edit), (every, fixed_point)):
            edits = script.of(r)
            splice(
                reports[r],
                entities.sentences[r],
                reports[partner],
                entities.sentences[partner],
                edits,
            )
            counts.update(RULE_LETTERS[edit.rule.name.lower()] for edit in edits)
    return Result(
        pairs=len(reports),
        exact=int((labels == labels[chosen]).all(1).sum()),
        one_edit=dict(sorted(one_edit.items())),
        unchanged=int((one.count == 0).sum()),
        fixed_point=dict(sorted(fixed_point.items())),
        most_edits=int(every.count.max()),
        unclean=unclean(entities, chosen, every),
        mean_score=float(score(rows, other).mean()),
    )


def reordered(z: SentenceEntities, order: torch.Tensor) -> SentenceEntities:
    """The reports in another order."""

    def parts(offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = offsets.diff()[order]
        starts = torch.cat([offsets.new_zeros(1), lengths.cumsum(0)])
        place = torch.arange(int(starts[-1])) - starts[:-1].repeat_interleave(lengths)
        return starts, offsets[order].repeat_interleave(lengths) + place

    sentence_offsets, sentences = parts(z.sentence_offsets)
    entity_offsets, rows = parts(z.entity_offsets)
    return SentenceEntities(
        sentence_offsets,
        z.sentence_key[sentences],
        entity_offsets,
        z.entity_sentence[rows],
        z.presence[rows],
        z.key[rows],
        z.embedding[rows],
    )


def score(x: SentenceEntities, y: SentenceEntities) -> torch.Tensor:
    """RaTEScore's form of a score, without affinities."""
    sides = (ReportEntities(z.entity_offsets, z.presence, z.embedding) for z in (x, y))
    return entity_match(*sides).score


def unclean(entities: Entities, chosen: np.ndarray, script: EditScript) -> list[int]:
    """List pairs whose final entities differ in text or presence from the other side's.

    Worked out from the sentences that stand there and a match, not from the plan's own sets.
    """
    members = [sentence_rows(entities, r) for r in range(len(chosen))]
    final, target, empty = [], [], []
    for r, partner in enumerate(chosen.tolist()):
        texts = [text for text, _ in members[partner]]
        first = {text: rows for text, rows in reversed(members[partner])}
        reference = [(text, first[text]) for text in texts]
        report = [(text, first.get(text, rows)) for text, rows in members[r]]
        for edit in script.of(r):
            report = edited(report, reference, edit)
        final.append([row for _, rows in report for row in rows])
        target.append([row for text, rows in first.items() for row in rows])
        empty.append(not target[-1])
    match = entity_match(ragged(entities, final), ragged(entities, target))
    found = []
    for cosine, lists in ((match.cosine_x, final), (match.cosine_y, target)):
        far = (cosine[:, EQUAL] <= TAU).tolist()
        owner = [r for r, rows in enumerate(lists) for _ in rows]
        found += [r for r, bad in zip(owner, far, strict=True) if bad and not empty[r]]
    return sorted(set(found))


def sentence_rows(entities: Entities, report: int) -> list[tuple[str, list[int]]]:
    """The sentences of a report: body, and the rows of its entities that take part."""
    text = entities.reports[report]
    found: list[tuple[str, list[int]]] = [
        (sentence_body(text[begin:end]), []) for begin, end in entities.sentences[report]
    ]
    rows = entities.of_report(report)
    for row in range(rows.start, rows.stop):
        if entities.presence[row] >= 0:
            found[entities.sentence[row]][1].append(row)
    return found


def edited(report: list, reference: list, edit: Edit) -> list:
    """The sentence list after one edit."""
    new = [reference[edit.reference]] if edit.reference >= 0 else []
    if edit.rule in (Rule.ADDITION, Rule.FILL):
        return report + new
    return report[: edit.sentence] + new + report[edit.sentence + 1 :]


@dataclass(frozen=True)
class AsText:
    """Count what fixed points become when they are read as text again.

    `edited` were edited on the way, `idempotent` are not edited any further, `resplit` split into
    the sentences that the script leaves; `failed` are the pairs that fail in either."""

    pairs: int
    edited: int
    idempotent: int
    resplit: int
    failed: list[int]


def as_text(reports: Sequence[str], references: Sequence[str]) -> AsText:
    """Edit each report toward its reference to the fixed point, and read the result."""
    extractor = build_extractor("rules")
    seeds = [philox_seed(0, 0, r, 0) for r in range(len(reports))]
    settings = EditSettings(max_edits=None)
    done = edit_reports(reports, references, seeds, extractor, settings)
    texts = [edit.text for edit in done]
    again = edit_reports(texts, references, seeds, extractor, settings)
    x, y = extractor.extract(reports), extractor.extract(references)
    ids: dict[str, int] = {}
    rows = sentence_entities(x, ids), sentence_entities(y, ids)
    script = edit_plan(*rows, seeds=torch.tensor(seeds), tau=TAU, max_edits=None)
    resplit = []
    for r, text in enumerate(texts):
        expected = sentence_rows(x, r)
        for edit in script.of(r):
            expected = edited(expected, sentence_rows(y, r), edit)
        bodies = [sentence_body(text[begin:end]) for begin, end in split_sentences(text)]
        # a number without a sentence, where a report was cut off, is taken by the next
        resplit.append([*filter(None, bodies)] == [body for body, _ in expected if body])
    still = [text == edit.text for text, edit in zip(texts, again, strict=True)]
    return AsText(
        pairs=len(texts),
        edited=sum(bool(edit.steps) for edit in done),
        idempotent=sum(still),
        resplit=sum(resplit),
        failed=[r for r, good in enumerate(zip(still, resplit, strict=True)) if not all(good)],
    )


def numbered(report: str) -> str:
    """Write the report as a numbered list: "1. Heart normal. 2. Lungs clear."

    Numbers that it has give way."""
    sentences = [report[begin:end] for begin, end in split_sentences(report)]
    bodies = [sentence[len(list_marker(sentence).text) :] for sentence in sentences]
    return " ".join(f"{number}. {body}" for number, body in enumerate(filter(None, bodies), 1))


def at_random(reports: list[str], seed: int = 0) -> dict[str, AsText]:
    """The reports paired at random, natural and numbered."""
    others = random.Random(seed).sample(reports, len(reports))
    lists, other_lists = list(map(numbered, reports)), list(map(numbered, others))
    return {
        "natural": as_text(reports, others),
        "numbered": as_text(lists, other_lists),
        "numbered toward natural": as_text(lists, others),
        "natural toward numbered": as_text(reports, other_lists),
    }


def ragged(entities: Entities, lists: list[list[int]]) -> ReportEntities:
    """These rows of the entities, a list a report."""
    rows = [row for part in lists for row in part]
    return ReportEntities(
        torch.tensor([0, *map(len, lists)]).cumsum(0),
        torch.as_tensor(entities.presence[rows]),
        torch.as_tensor(entities.embedding[rows]),
    )
