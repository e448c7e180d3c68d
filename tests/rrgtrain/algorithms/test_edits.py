"""Edited reports as text: 300 generated ones of every shape, real ones, and the named examples."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch

from rrgclinical import Entities, Extractor, build_extractor, build_labeller
from rrgclinical.rules import split_sentences
from rrgkern import Edit, ReportEntities, Rule, edit_plan, entity_match, philox_seed, sentence_body
from rrgkern.edit_plan import list_marker
from rrgreport import NEUTRAL, mark_reports
from rrgtrain.algorithms import Edited, edit_reports, sentence_entities
from rrgtrain.schema import EditSettings
from tests.real_data import REAL
from tests.rrgdata.common import studies_under

# Findings on both sides, and what a splitter may stumble over.
SENTENCES = [
    "The heart is enlarged.",
    "Heart size is normal.",
    "No pneumothorax.",
    "At 8 a.m. there is a pneumothorax.",
    "Small left pleural effusion.",
    "No pleural effusion.",
    "Pneumonia.",
    "No pneumonia.",
    "A 1.5 cm nodule in the left upper lobe.",
    "2 nodules were seen on the left.",
    "Hiatal hernia!",
    "No edema (as before).",
    "Fracture of the left 9th rib.",
    "Compression fracture of T. 5 vertebra.",
    "Discussed with Dr. Smith.",
    "Comparison is made with XXXX.",
    "Low lung volumes.",
    "Scarring vs. atelectasis.",
    "Is there emphysema?",
    "bibasilar atelectasis.",
    "No evidence of hepatitis B.",
    "No large right effusion, but a small one on the left.",
]


def bare(sentence: str) -> str:
    return sentence.removesuffix(".")


def in_places(sentences: list[str], style: str, between: str) -> str:
    return between.join(f"{style.format(k)}{one}" for k, one in enumerate(sentences, 1))


SHAPES: dict[str, Callable[[list[str]], str]] = {
    "natural": " ".join,
    "missing stop": lambda all_: " ".join([*all_[:-1], *map(bare, all_[-1:])]),
    "lines": "\n".join,
    "numbered": lambda all_: in_places(all_, "{}. ", " "),
    "numbered lines": lambda all_: in_places(all_, "{}. ", "\n"),
    "numbered without stops": lambda all_: in_places([*map(bare, all_)], "{}. ", " "),
    "numbered lines without stops": lambda all_: in_places([*map(bare, all_)], "{}. ", "\n"),
    "one bracket": lambda all_: in_places(all_, "{}) ", " "),
    "two brackets": lambda all_: in_places([*map(bare, all_)], "({}) ", "\n  "),
    "trailing line break": lambda all_: " ".join(all_) + " \n",
    "cut off": lambda all_: in_places([*all_, ""], "{}. ", " ").rstrip(),
    "bullets": lambda all_: in_places(all_, "- ", "\n"),
    # as IU X-Ray's impressions end
    "a second stop at the end": lambda all_: " ".join([*all_, "."]),
    "second stops": lambda all_: " ".join(f"{one} ." for one in all_),
    "numbered with second stops": lambda all_: in_places([f"{one} ." for one in all_], "{}. ", " "),
}
COUNT = 300


@cache
def extractor() -> Extractor:
    return build_extractor("rules")


@cache
def pairs() -> tuple[list[str], list[str]]:
    """300 reports of the shapes in turn, and a reference of any shape for each."""
    drawn, shapes = random.Random(0), list(SHAPES.values())

    def report(shape: Callable[[list[str]], str]) -> str:
        return shape(drawn.sample(SENTENCES, drawn.randint(1, 7)))

    turns = [shapes[k % len(shapes)] for k in range(COUNT)]
    return [report(shape) for shape in turns], [report(drawn.choice(shapes)) for _ in turns]


@cache
def edited(max_edits: int | None) -> list[Edited]:
    return edit_reports(*pairs(), range(COUNT), extractor(), EditSettings(max_edits=max_edits))


def sentence_rows(entities: Entities, report: int) -> list[tuple[str, list[int]]]:
    """The sentences of a report: body, and the rows of its entities that take part."""
    text = entities.reports[report]
    members: list[tuple[str, list[int]]] = [
        (sentence_body(text[begin:end]), []) for begin, end in entities.sentences[report]
    ]
    rows = entities.of_report(report)
    for row in range(rows.start, rows.stop):
        if entities.presence[row] >= 0:
            members[entities.sentence[row]][1].append(row)
    return members


def after(report: list, reference: list, edit: Edit) -> list:
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
    seeds = [philox_seed(0, 0, r, 0) for r in range(len(reports))]
    settings = EditSettings(max_edits=None)
    done = edit_reports(reports, references, seeds, extractor(), settings)
    texts = [edit.text for edit in done]
    again = edit_reports(texts, references, seeds, extractor(), settings)
    x, y = extractor().extract(reports), extractor().extract(references)
    ids: dict[str, int] = {}
    rows = sentence_entities(x, ids), sentence_entities(y, ids)
    script = edit_plan(*rows, seeds=torch.tensor(seeds), tau=settings.tau, max_edits=None)
    resplit = []
    for r, text in enumerate(texts):
        expected = sentence_rows(x, r)
        for edit in script.of(r):
            expected = after(expected, sentence_rows(y, r), edit)
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


def sentences(text: str) -> list[str]:
    return [text[begin:end] for begin, end in split_sentences(text)]


def bodies(text: str) -> list[str]:
    return [sentence_body(sentence) for sentence in sentences(text)]


def test_every_shape_splits_into_its_sentences() -> None:
    for shape in SHAPES.values():
        assert [*filter(None, bodies(shape(SENTENCES)))] == [*map(sentence_body, SENTENCES)]


def test_every_fixed_point_stays_and_splits_into_its_own_sentences() -> None:
    result = as_text(*pairs())
    assert result.failed == []
    assert (result.idempotent, result.resplit) == (COUNT, COUNT)
    assert result.edited > 0.9 * COUNT
    assert {rule for edit in edited(None) for rule, _, _ in edit.steps} >= set("acde")


def test_reports_behind_headings_split_into_their_own_sentences_too() -> None:
    drawn = random.Random(1)
    headed = [
        [drawn.choice(["IMPRESSION: ", "Findings: ", "IMPRESSION:\n"]) + text for text in texts]
        for texts in pairs()
    ]
    result = as_text(*headed)
    assert (result.failed, result.idempotent, result.resplit) == ([], COUNT, COUNT)


def unclean(texts: list[str], references: list[str]) -> list[str]:
    """List the texts with something spurious or missing, by the report's marks.

    They know nothing of the plan."""
    marked = mark_reports(texts, references, extractor())
    said = extractor().extract(references)
    spurious = [
        any(mark not in (NEUTRAL, "correct") for body, mark in read.pieces if body.strip())
        for read in marked
    ]
    return [
        texts[r]
        for r, read in enumerate(marked)
        if (said.presence[said.of_report(r)] >= 0).any() and (spurious[r] or read.missing)
    ]


def test_at_a_fixed_point_nothing_is_spurious_and_nothing_missing() -> None:
    reports, references = pairs()
    assert unclean([edit.text for edit in edited(None)], references) == []
    assert unclean(reports, references)


@pytest.mark.parametrize("max_edits", [1, None])
def test_numbers_stay_in_order_and_nothing_is_said_twice(max_edits: int | None) -> None:
    for report, edit in zip(pairs()[0], edited(max_edits), strict=True):
        assert edit.text == edit.text.rstrip()
        assert edit.text[: edit.first_changed] == report[: edit.first_changed]
        assert max(Counter(bodies(edit.text)).values()) == 1
        number = re.compile(r"\(?(\d+)[.)](?: |$)")
        places = [number.match(one) for one in sentences(edit.text)]
        found = [int(place[1]) for place in places if place]
        # a list that a deletion emptied is none any more
        is_list = number.match(report) and not any(rule == "e" for rule, _, _ in edit.steps)
        assert found == (list(range(1, len(places) + 1)) if is_list else []), edit.text
        breaks = edit.text.count("\n")
        if is_list and "\n" in report:
            assert breaks == len(places) - 1
        elif "\n" not in report:
            assert breaks == 0


NAMED = {
    "missing stop": (
        "Heart size is normal. No pneumonia",
        "Heart size is normal. No pneumonia. Hiatal hernia.",
        "Heart size is normal. No pneumonia. Hiatal hernia.",
    ),
    "numbered": (
        "1. Cardiomegaly. 2. Right effusion. 3. Pneumonia.",
        "1. Pneumonia. 2. No effusion.",
        "1. No effusion. 2. Pneumonia.",
    ),
    "last one deleted": ("No edema. Pneumonia.", "No edema.", "No edema."),
    "second stop": ("Small effusion. . Clear lungs.", "No effusion.", "No effusion."),
    "second stop at the end": ("Small left effusion. .", "Lungs are clear.", "Lungs are clear."),
    "second stop of what stays": (
        "1. Small effusion. .",
        "1. Small effusion. 2. Large hernia.",
        "1. Small effusion. . 2. Large hernia.",
    ),
    "equal but for number and stop": (
        "2. No pneumonia 3. Edema",
        "1. Edema. No pneumonia.",
        "2. No pneumonia 3. Edema",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_examples(name: str) -> None:
    report, reference, wanted = NAMED[name]
    for seed in range(5):
        (edit,) = edit_reports(
            [report], [reference], [seed], extractor(), EditSettings(max_edits=None)
        )
        assert edit.text == wanted


WRAPPED = (
    "THE HEART IS ENLARGED. THERE IS NO EVIDENCE OF PLEURAL\nEFFUSION OR OF\nPNEUMOTHORAX. "
    "A LARGE HIATAL\nHERNIA."
)


def test_a_wrapped_reference_is_one_text():
    extractor = build_extractor("rules")
    right = "The heart is enlarged. No effusion. No pneumothorax. Large hiatal hernia."
    for report in (right, "No acute findings.", right.replace(" ", "\n", 2)):
        ways = [
            edit_reports([report], [text], [3], extractor, EditSettings())[0]
            for text in (WRAPPED, WRAPPED.replace("\n", " "))
        ]
        assert ways[0] == ways[1]
        assert (report == right and not ways[0].steps) or report != right
        assert "\n" not in "".join(added for _, _, added in ways[0].steps)


def partners(labels: np.ndarray) -> np.ndarray:
    """Choose the report [R] that each one is edited toward.

    It is the next of those with the fewest other labels."""
    count = len(labels)
    distance = (labels[:, None, :] != labels[None, :, :]).sum(2)
    np.fill_diagonal(distance, labels.shape[1] + 1)
    nearest = distance == distance.min(1, keepdims=True)
    ahead = (np.arange(count)[None, :] - np.arange(count)[:, None]) % count
    return np.where(nearest, ahead, count).argmin(1)


def numbered(report: str) -> str:
    """Write the report as a numbered list: "1. Heart normal. 2. Lungs clear."

    Numbers that it has give way."""
    bodies = [sentence[len(list_marker(sentence).text) :] for sentence in sentences(report)]
    return " ".join(f"{number}. {body}" for number, body in enumerate(filter(None, bodies), 1))


@pytest.mark.realdata
@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data at {REAL}; set RRG_DATA")
def test_no_pair_of_real_reports_fails_and_every_fixed_point_is_clean() -> None:
    """Toward one with the same labels, then toward one drawn at random, also as numbered lists."""
    studies = studies_under("iu_xray", REAL / "iu_xray", images="none")["train"]
    reports = [study.report for study in studies if study.report][:150]
    labels = build_labeller("rules").label(reports)
    chosen = partners(labels)
    assert (labels == labels[chosen]).all(1).sum() > 50
    toward = [reports[partner] for partner in chosen]
    seeds = [philox_seed(0, 0, r, 0) for r in range(150)]
    one, every = (
        edit_reports(reports, toward, seeds, extractor(), EditSettings(max_edits=most))
        for most in (1, None)
    )
    assert max(len(edit.steps) for edit in one) == 1
    assert {rule for edit in every for rule, _, _ in edit.steps} >= {"c", "d"}
    assert unclean([edit.text for edit in every], toward) == []
    x, y = (sentence_entities(extractor().extract(texts), {}) for texts in (reports, toward))
    sides = (ReportEntities(z.entity_offsets, z.presence, z.embedding) for z in (x, y))
    assert 0.3 < entity_match(*sides).score.mean() < 1.0
    others = random.Random(0).sample(reports, 150)
    lists, other_lists = [*map(numbered, reports)], [*map(numbered, others)]
    for texts in (reports, lists):
        for references in (others, other_lists):
            read = as_text(texts, references)
            assert read.failed == [] and read.edited > 0.5 * read.pairs
