"""The rules against hand-written sentences, and how they aggregate a report."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rrgclinical
from rrgclinical import ClassId, build_labeller
from rrgclinical.facts import RulesFacts
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, SUPPORT_DEVICES
from rrgclinical.stress import IDLE, NOTHING
from tests.rrgclinical.cases import TABLES, cases, table

LABELLER = build_labeller("rules")
SENTENCES = [case for table in TABLES for case in cases(table)]


def label(text: str) -> dict[int, int]:
    row = LABELLER.label([text])[0]
    return {column: int(value) for column, value in enumerate(row) if value}


@pytest.mark.parametrize("table", [*TABLES, "exports", "misread"])
def test_sentences_of_a_table(table: str) -> None:
    misread = {}
    for sentence, labels in cases(table):
        abnormal = any(v in (1, 3) for c, v in labels.items() if c != SUPPORT_DEVICES)
        read = label(sentence)
        well = read.get(NO_FINDING) == ClassId.POSITIVE
        unsaid = not abnormal and ClassId.NEGATIVE not in labels.values()
        named = {column: value for column, value in read.items() if column != NO_FINDING}
        if named != labels or (not unsaid and well == abnormal):
            misread[sentence] = [f"{OBSERVATIONS[c]} {ClassId(v).name}" for c, v in read.items()]
    assert not misread


def test_a_device_alone_leaves_no_finding_positive():
    assert label("Pacemaker in place. Lungs are clear.")[NO_FINDING] == ClassId.POSITIVE


@pytest.mark.parametrize("report", ["", "   \n", "...", "\u200b"])
def test_a_report_that_says_nothing_is_blank_throughout(report):
    assert label(report) == {}


def test_batch_equals_single_whatever_the_order():
    texts = [text for text, _ in cases()]
    together = LABELLER.label(texts)
    assert together.dtype == np.int8
    assert together.shape == (len(texts), 14)
    np.testing.assert_array_equal(LABELLER.label(texts[::-1])[::-1], together)
    np.testing.assert_array_equal(together[7], LABELLER.label([texts[7]])[0])


def test_case_and_spacing_do_not_matter():
    texts = [text for text, _ in SENTENCES if "XXXX" not in text]
    upper = LABELLER.label([text.upper() for text in texts])
    np.testing.assert_array_equal(upper, LABELLER.label(texts))
    wide = LABELLER.label([text.replace(" ", "   ") for text in texts])
    np.testing.assert_array_equal(wide, LABELLER.label(texts))


def test_curly_and_non_ascii_neighbours_keep_the_reading():
    assert label("\u0130 — no “effusion”…")[9] == ClassId.NEGATIVE


# No Finding is positive where a report says so, and a text that says nothing is blank.
SILENT = [*NOTHING, *IDLE, *table("reports that say nothing")]
NORMAL = table("reports that say that all is well")


@pytest.mark.parametrize("text", SILENT)
def test_a_text_that_says_nothing_is_blank(text):
    assert not LABELLER.label([text]).any()
    (reading,) = RulesFacts().read([text])
    assert not any(reading.verdicts)


@pytest.mark.parametrize("text", NORMAL)
def test_a_report_that_says_that_all_is_well_is_no_finding(text):
    assert LABELLER.label([text])[0, NO_FINDING] == ClassId.POSITIVE
    (reading,) = RulesFacts().read([text])
    assert reading.verdicts[NO_FINDING] == ClassId.POSITIVE


@pytest.mark.parametrize("text", ["Scoliosis.", "Pneumonia. No effusion.", "Possible edema."])
def test_a_report_that_names_something_is_not(text):
    assert LABELLER.label([text])[0, NO_FINDING] == ClassId.BLANK


# Words with a slip of the keys, and neighbours that are words of their own.
@pytest.mark.parametrize(("text", "name", "status"), table("misspelt words"))
def test_a_misspelt_word_is_read(text, name, status):
    assert LABELLER.label([text])[0, OBSERVATIONS.index(name)] == ClassId[status]


@pytest.mark.parametrize("text", table("other words"))
def test_another_word_is_left_alone(text):
    assert not LABELLER.label([text])[0, :-1].any()


def test_an_ending_makes_another_word():
    effusion = OBSERVATIONS.index("Pleural Effusion")
    for text in ("The effusion may resolve.", "If the effusion resolves."):
        assert LABELLER.label([text])[0, effusion] != ClassId.NEGATIVE


# Class ids and their conversions, against tables written by hand.
ROW = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1]], dtype=np.int8)


def test_conversions_count_uncertain_as_positive_and_signs_leave_no_finding_out():
    assert rrgclinical.to_binary(ROW).tolist() == [[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]]
    assert rrgclinical.to_signs(ROW).tolist() == [[0, 1, -1, 1, 0, 1, -1, 1, 0, 1, -1, 1, 0]]
    assert rrgclinical.chexpert_five(ROW).tolist() == [[1, 0, 1, 3, 1]]


@pytest.mark.parametrize(
    "read",
    [rrgclinical.build_labeller("rules").label, rrgclinical.build_extractor("rules").extract],
)
def test_reports_that_are_no_text_are_named_by_index(read):
    with pytest.raises(TypeError, match=r"reports\[1\] is NoneType; wanted str"):
        read(["clear lungs.", None, 3])
    with pytest.raises(TypeError, match="reports is one str; wanted a sequence of str"):
        read("clear lungs.")


# Entities refuse to be built from fields that contradict each other.
GOOD = rrgclinical.build_extractor("rules").extract(
    ["No effusion. Heart is enlarged.", "Clear lungs."]
)


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("offsets", GOOD.offsets + 1, ValueError, "offsets run"),
        ("presence", GOOD.presence + np.int8(3), ValueError, "presence holds"),
        ("kind", GOOD.kind + np.int8(100), ValueError, "kind holds"),
        ("sentence", GOOD.sentence + np.int32(9), ValueError, "names sentence 9 of report 0"),
        ("span", GOOD.span + np.int32(500), ValueError, "outside its sentence"),
        ("embedding", GOOD.embedding * 2, ValueError, "norm 2; wanted unit rows"),
        ("sentences", [[(0, 99)], GOOD.sentences[1]], ValueError, r"sentence span \(0, 99\)"),
    ],
)
def test_a_broken_field_is_named(field, value, error, text):
    with pytest.raises(error, match=text):
        dataclasses.replace(GOOD, **{field: value})
