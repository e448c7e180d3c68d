"""Edits of whole batches of reports: entities, plan, spliced text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from rrgclinical import Entities, Extractor
from rrgclinical.cached import CachedExtractor
from rrgclinical.rules import join_lines, split_sentences
from rrgkern import SentenceEntities, edit_plan, sentence_body, splice
from rrgtrain.schema import EditSettings

# The paper letters its rules; a deletion of all copies is the released code's form of (c).
RULE_LETTERS = {
    "conflict": "a",
    "replacement": "b",
    "deletion": "c",
    "deletion_of_copies": "c",
    "addition": "d",
    "fill": "e",
}
_ANOTHER = "Lungs are clear."


@dataclass(frozen=True)
class Edited:
    """A report after its edits.

    `first_changed` is the index of the first character that differs from the report it was
    made from; `steps` holds (letter of the rule, removed text, added text) in the
    order applied.
    """

    text: str
    first_changed: int
    steps: tuple[tuple[str, str, str], ...]


def sentence_entities(entities: Entities, sentence_ids: dict[str, int]) -> SentenceEntities:
    """The extractor's output as the tensors `edit_plan` takes.

    `sentence_ids` numbers what sentences say, without their list numbers and stops; sharing it
    between reports and references is what makes equal sentences equal.
    """
    counts, keys = [0], []
    for report, spans in zip(entities.reports, entities.sentences, strict=True):
        counts.append(len(spans))
        for begin, end in spans:
            body = sentence_body(" ".join(report[begin:end].split()))
            keys.append(sentence_ids.setdefault(body, len(sentence_ids)))
    return SentenceEntities(
        sentence_offsets=torch.tensor(counts, dtype=torch.int64).cumsum(0),
        sentence_key=torch.tensor(keys, dtype=torch.int64),
        entity_offsets=torch.as_tensor(entities.offsets),
        entity_sentence=torch.as_tensor(entities.sentence),
        presence=torch.as_tensor(entities.presence),
        key=torch.as_tensor(entities.key),
        embedding=torch.as_tensor(entities.embedding),
    )


def by_text(x: Entities, y: Entities) -> tuple[Entities, Entities]:
    """Match entities of equal canonical text (cosine 1), and no others (0).

    The exact matching that EditGRPO's table 4 sets beside cosines.
    """
    rows = {text: row for row, text in enumerate(dict.fromkeys([*x.text, *y.text]))}

    def one_hot(entities: Entities) -> Entities:
        embedding = np.zeros((len(entities), max(1, len(rows))), dtype=np.float32)
        embedding[np.arange(len(entities)), [rows[text] for text in entities.text]] = 1.0
        return replace(entities, embedding=embedding)

    return one_hot(x), one_hot(y)


def whole_sentences(report: str) -> str:
    """Cut a report that broke off behind its last whole sentence.

    A sentence is whole where another one would begin behind it: not after half a word, an
    abbreviation, or a number whose decimals may be missing.
    """
    spans, text = split_sentences(report), report.rstrip()
    if not spans:
        return ""
    if spans[-1][1] < len(text):  # a bullet, perhaps, that introduces nothing
        return whole_sentences(report[: spans[-1][1]])
    begins_anew = split_sentences(f"{report} {_ANOTHER}")[-1][0] > len(report)
    if begins_anew and not re.search(r"\d\.$", text):
        return text
    return report[: spans[-2][1]] if len(spans) > 1 else ""


def _of_references(extractor: Extractor, references: Sequence[str]) -> Entities:
    if isinstance(extractor, CachedExtractor):
        return extractor.extract(references, keep=True)
    return extractor.extract(references)


def edit_reports(
    reports: Sequence[str],
    references: Sequence[str],
    seeds: Sequence[int],
    extractor: Extractor,
    settings: EditSettings,
) -> list[Edited]:
    """Each report edited towards its reference (EditGRPO, rules a to e).

    `seeds` [R] decide every free choice, one per report. No white space trails an edited report.
    """
    # A wrapped sentence of a reference goes into a report as one line.
    references = [join_lines(reference) for reference in references]
    x, y = extractor.extract(reports), _of_references(extractor, references)
    if settings.match == "exact":
        x, y = by_text(x, y)
    ids: dict[str, int] = {}
    script = edit_plan(
        sentence_entities(x, ids),
        sentence_entities(y, ids),
        seeds=torch.tensor(seeds, dtype=torch.int64),
        tau=settings.tau,
        tau_replace=settings.tau_replace,
        max_edits=settings.max_edits,
        rule=settings.rule,
        conflict_requires_spurious=settings.conflict_requires_spurious,
    )
    edited = []
    for r, (report, reference) in enumerate(zip(reports, references, strict=True)):
        done = splice(report, x.sentences[r], reference, y.sentences[r], script.of(r))
        steps = tuple((RULE_LETTERS[rule], removed, added) for rule, removed, added in done.steps)
        text = done.text.rstrip() if steps else done.text
        edited.append(Edited(text, min(done.first_changed, len(text)), steps))
    return edited
