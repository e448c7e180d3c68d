"""Class ids and their conversions, against tables written by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rrgclinical
from rrgtrain.errors import UserError

ROW = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1]], dtype=np.int8)


def test_observations_stand_in_chexbert_order():
    assert len(rrgclinical.OBSERVATIONS) == 14
    assert rrgclinical.NO_FINDING == 13
    assert [rrgclinical.OBSERVATIONS[i] for i in rrgclinical.CHEXPERT_5] == [
        "Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion",
    ]  # fmt: skip


def test_binary_counts_uncertain_as_positive():
    assert rrgclinical.to_binary(ROW).tolist() == [[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]]


def test_signs_leave_no_finding_out():
    assert rrgclinical.to_signs(ROW).tolist() == [[0, 1, -1, 1, 0, 1, -1, 1, 0, 1, -1, 1, 0]]


def test_five_columns():
    assert rrgclinical.chexpert_five(ROW).tolist() == [[1, 0, 1, 3, 1]]


@pytest.mark.parametrize(
    ("labels", "error", "text"),
    [
        (np.zeros((2, 13), np.int8), ValueError, r"shape \(2, 13\)"),
        (np.full((1, 14), 4), ValueError, "ids 4..4"),
        (np.full((1, 14), -1), ValueError, "ids -1..-1"),
        (np.zeros((1, 14)), TypeError, "dtype float64"),
    ],
)
def test_bad_labels_are_named(labels, error, text):
    with pytest.raises(error, match=text):
        rrgclinical.to_binary(labels)


@pytest.mark.parametrize("build", [rrgclinical.build_labeller, rrgclinical.build_extractor])
def test_unknown_backend_lists_the_choices(build):
    with pytest.raises(UserError, match=r"unknown \w+ 'chexpert': choose one of .*rules"):
        build("chexpert")


def test_registering_a_name_twice_is_refused():
    with pytest.raises(ValueError, match="'rules' is already"):
        rrgclinical.register_labeller("rules", "elsewhere:Labeller")
    with pytest.raises(ValueError, match="wanted 'module:callable'"):
        rrgclinical.register_labeller("elsewhere", "elsewhere.Labeller")


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


def test_a_rebuilt_copy_is_accepted():
    assert len(dataclasses.replace(GOOD)) == len(GOOD)


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("sentences", GOOD.sentences[:1], ValueError, "sentences of 1 reports; wanted 2"),
        ("offsets", GOOD.offsets[:-1], ValueError, r"offsets has shape \(2,\)"),
        ("offsets", GOOD.offsets + 1, ValueError, "offsets run"),
        ("offsets", GOOD.offsets.astype(np.int32), TypeError, "offsets is int32"),
        ("presence", GOOD.presence + np.int8(3), ValueError, "presence holds"),
        ("kind", GOOD.kind + np.int8(100), ValueError, "kind holds"),
        ("key", GOOD.key.tolist(), TypeError, "key is list"),
        ("sentence", GOOD.sentence + np.int32(9), ValueError, "names sentence 9 of report 0"),
        ("span", GOOD.span + np.int32(500), ValueError, "outside its sentence"),
        ("span", GOOD.span[:, :1], ValueError, "span has shape"),
        ("embedding", GOOD.embedding * 2, ValueError, "norm 2; wanted unit rows"),
        ("embedding", GOOD.embedding * np.float32(np.nan), ValueError, "norm nan"),
        ("embedding", GOOD.embedding.astype(np.float64), TypeError, "embedding is float64"),
        ("embedding", GOOD.embedding[:-1], ValueError, "embedding has shape"),
        ("sentences", [[(0, 99)], GOOD.sentences[1]], ValueError, r"sentence span \(0, 99\)"),
    ],
)
def test_a_broken_field_is_named(field, value, error, text):
    with pytest.raises(error, match=text):
        dataclasses.replace(GOOD, **{field: value})


def test_slices_of_reports():
    assert isinstance(GOOD, rrgclinical.Entities)
    assert GOOD.of_report(0) == slice(0, int(GOOD.offsets[1]))
    assert GOOD.of_report(1).stop == len(GOOD)
