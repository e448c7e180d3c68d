"""Labels equal to the official way of running the same weights, whatever the batch."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from rrgclinical import build_labeller, to_binary
from rrgclinical.chexbert import to_classification
from rrgclinical.inference import length_sorted
from tests.rrgclinical.chexbert import tiny

REPORTS = [*tiny.ADVERSARIAL, *tiny.reports(220)]


@pytest.fixture(scope="module")
def official(folder):
    return np.array(tiny.official_labels(REPORTS, folder), dtype=np.int8)


def test_labels_are_official(labeller, official):
    # A fixture that says the same of every report would hide a mixed-up order.
    assert {int(i) for i in np.unique(official)} == {0, 1, 2, 3}
    assert len(np.unique(official, axis=0)) > 50
    found = labeller.label(REPORTS)
    assert found.dtype == np.int8
    assert np.array_equal(found, official)


@pytest.mark.parametrize("budget", [1, 64, 700, 10**9])
def test_any_batch_gives_the_same_labels(folder, official, budget):
    some = [0, 3, 5, 11, *range(20, 60)]
    found = tiny.labeller(folder, token_budget=budget).label([REPORTS[i] for i in some])
    assert np.array_equal(found, official[some])


def test_any_order_gives_the_same_labels(labeller, official):
    order = np.random.default_rng(0).permutation(len(REPORTS))
    assert np.array_equal(labeller.label([REPORTS[i] for i in order]), official[order])


def test_logits_move_with_the_batch_by_rounding_only(folder, labeller):
    together = labeller.class_logits(REPORTS[20:60])
    alone = torch.cat([labeller.class_logits([report]) for report in REPORTS[20:60]])
    present = together.isfinite()
    assert torch.equal(present, alone.isfinite())
    assert not present[:, 13, 2:].any()
    assert present.flatten(1).sum(1).eq(54).all()
    torch.testing.assert_close(together[present], alone[present], rtol=1e-5, atol=1e-5)


def test_no_finding_is_blank_or_positive(labeller):
    assert set(labeller.label(REPORTS)[:, 13].tolist()) == {0, 1}


def test_a_repeated_report_is_read_once(labeller, monkeypatch):
    rows = []
    forward = labeller.network.forward
    monkeypatch.setattr(
        labeller.network, "forward", lambda e, m: (rows.append(len(e)), forward(e, m))[1]
    )
    found = labeller.label([REPORTS[20], REPORTS[21], REPORTS[20], REPORTS[20]])
    assert sum(rows) == 2
    assert np.array_equal(found[[0, 0, 0]], found[[0, 2, 3]])
    assert not np.array_equal(found[0], found[1])


def test_no_report(labeller):
    assert labeller.label([]).shape == (0, 14)
    assert labeller.read([]).truncated.shape == (0,)


def test_truncation_is_flagged_and_told_once(folder, caplog):
    labeller = tiny.labeller(folder)
    with caplog.at_level(logging.WARNING):
        reading = labeller.read(["heart", tiny.LONG, ""])
        labeller.read([tiny.LONG])
    assert reading.truncated.tolist() == [False, True, False]
    assert [r.getMessage()[:32] for r in caplog.records] == ["1 of 3 reports exceed the 512 wo"]


def test_text_behind_the_limit_changes_nothing(labeller):
    kept = "the " * 510
    assert torch.equal(
        labeller.class_logits([kept + "edema mild"]), labeller.class_logits([kept + "fracture"])
    )


def test_bf16_heads_stay_fp32(folder, labeller):
    half = tiny.labeller(folder, dtype="bf16")
    logits = half.class_logits(REPORTS[20:120])
    assert logits.dtype == torch.float32
    assert half.network.bert.dtype == torch.bfloat16
    assert torch.equal(half.network.heads.weight, labeller.network.heads.weight)
    agree = (half.label(REPORTS[20:120]) == labeller.label(REPORTS[20:120])).mean()
    assert agree > 0.9


def test_the_registry_builds_it(folder, official):
    options = {"weights": folder / "weights.pth", "tokenizer": str(folder), "config": tiny.CONFIG}
    found = build_labeller("chexbert", **options).label(REPORTS[:4])
    assert np.array_equal(found, official[:4])


def test_a_report_that_is_no_text_is_named(labeller):
    with pytest.raises(TypeError, match=r"reports\[1\] is NoneType; wanted str"):
        labeller.label(["clear", None])
    with pytest.raises(TypeError, match="reports is one str"):
        labeller.label("clear")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_no_labels(folder, value):
    labeller = tiny.labeller(folder)
    labeller.network.heads.bias[6] = value
    with pytest.raises(FloatingPointError, match="logits are not finite"):
        labeller.label(["heart"])


def test_both_modes_of_the_official_package():
    row = np.array([[0, 1, 2, 3] * 3 + [0, 1]], dtype=np.int8)
    assert to_binary(row).tolist() == [[0, 1, 0, 1] * 3 + [0, 1]]
    assert to_classification(row) == [["", 1, 0, -1] * 3 + ["", 1]]
    with pytest.raises(ValueError, match=r"shape \(1, 13\)"):
        to_classification(row[:, :13])


def test_batches_keep_the_budget():
    lengths = [3, 9, 1, 9, 4, 30]
    batches = list(length_sorted(lengths, 18))
    assert batches == [[5], [1, 3], [4, 0, 2]]
    assert list(length_sorted([], 18)) == []


def test_fingerprint_tells_weights_and_dtypes_apart(folder, labeller, tmp_path):
    assert tiny.labeller(folder).fingerprint == labeller.fingerprint
    assert tiny.labeller(folder, dtype="bf16").fingerprint != labeller.fingerprint

    def change(state):
        state["module.linear_heads.3.bias"][1] += 1

    other = tiny.labeller(tiny.write_folder(tmp_path, change))
    assert other.fingerprint != labeller.fingerprint
