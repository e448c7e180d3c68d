"""Label metrics against numbers worked out by hand, and the bootstrap against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rrgclinical.metrics import (
    bootstrap_weights,
    finding_scores,
    frequent_labels,
    intervals,
    label_report,
    label_scores,
    mean_scores,
    of_patients,
    paired,
    per_label_f1,
    single_report_f1,
    subgroup,
    tails,
    together,
    values,
)
from rrgclinical.text import text_scores

ONE = mean_scores({"a": [1.0]})


def rows(*reports: dict[int, int]) -> np.ndarray:
    labels = np.zeros((len(reports), 14), dtype=np.int8)
    for row, report in zip(labels, reports, strict=True):
        for column, value in report.items():
            row[column] = value
    return labels


TRUTH = rows({1: 1, 9: 3}, {9: 1, 4: 2}, {13: 1})
PRED = rows({1: 1, 7: 1}, {9: 3, 4: 1}, {13: 1, 8: 2})


def test_by_hand():
    # hits: (0,1) (1,9) (2,13); spurious: (0,7) (1,4); missed: (0,9).
    values = label_report(PRED, TRUTH)
    assert values["micro_precision"] == pytest.approx(3 / 5)
    assert values["micro_recall"] == pytest.approx(3 / 4)
    assert values["micro_f1"] == pytest.approx(6 / 9)
    # Column F1: 1 -> 1, 9 -> 2/3, 13 -> 1, 7 and 4 -> 0, the rest undefined and 0.
    assert values["macro_f1"] == pytest.approx((1 + 2 / 3 + 1) / 14)
    assert values["macro_precision"] == pytest.approx(3 / 14)
    assert values["macro_recall"] == pytest.approx((1 + 1 / 2 + 1) / 14)
    # Five columns 1 4 5 7 9: hits 2, spurious 2, missed 1.
    assert values["micro_f1_5"] == pytest.approx(4 / 7)
    assert values["micro_precision_5"] == pytest.approx(2 / 4)
    assert values["micro_recall_5"] == pytest.approx(2 / 3)
    assert values["macro_f1_5"] == pytest.approx((1 + 2 / 3) / 5)
    # Reports: 2/4, 2/3, 1.
    assert values["sample_f1"] == pytest.approx((1 / 2 + 2 / 3 + 1) / 3)
    assert values["sample_precision"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert values["sample_recall"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    # Five columns: 1 7 against 1 9, 4 9 against 9, blank against blank.
    assert values["sample_precision_5"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert values["sample_recall_5"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert values["accuracy"] == pytest.approx((14 * 3 - 3) / (14 * 3))
    assert values["exact_5"] == pytest.approx(1 / 3)


def test_findings_by_hand():
    found = values(finding_scores(PRED, TRUTH))
    rates = [found[f"{rate}/Pleural Effusion"] for rate in ("precision", "recall", "f1", "support")]
    assert rates == pytest.approx([1, 1 / 2, 2 / 3, 2])
    assert [found[f"{rate}/Consolidation"] for rate in ("precision", "f1", "support")] == [0, 0, 0]
    f1 = {1: 1, 9: pytest.approx(2 / 3), 13: 1}
    assert per_label_f1(PRED, TRUTH).tolist() == [f1.get(column, 0) for column in range(14)]
    assert single_report_f1(PRED, TRUTH).tolist() == pytest.approx([1 / 2, 2 / 3, 1])


def test_two_blank_reports_score_zero():
    blank, negative = rows({}), rows({3: 2})
    assert single_report_f1(blank, blank).tolist() == [0.0]
    assert single_report_f1(negative, blank).tolist() == [0.0]
    assert label_report(blank, blank)["micro_f1"] == 0.0


def test_identical_reports_with_no_finding_only():
    # f1chexbert gives micro 1 and macro 1/14 for this pair.
    normal = rows({13: 1})
    values = label_report(normal, normal)
    assert values["micro_f1"] == 1.0
    assert values["macro_f1"] == pytest.approx(1 / 14)


def random_labels(seed: int, reports: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.choice(4, size=(reports, 14), p=(0.6, 0.2, 0.15, 0.05))
    noise = rng.random(truth.shape) < 0.2
    return np.where(noise, rng.integers(0, 4, truth.shape), truth), truth


def test_bootstrap_equals_resampling_the_reports_themselves():
    pred, truth = random_labels(0, 40)
    resamples, seed = 200, 3
    bounds = intervals(label_scores(pred, truth), resamples=resamples, seed=seed)
    weights = np.random.default_rng(seed).multinomial(40, np.full(40, 1 / 40), size=resamples)
    drawn = []
    for counts in weights:
        index = np.repeat(np.arange(40), counts)
        drawn.append(label_report(pred[index], truth[index]))
    # 0.025 by scipy: norm.cdf(-sqrt(40 / 39) * t.ppf(0.975, 39)); t is 2.306 of 8, 12.706 of 1
    found = [tails(0.95, rows)[0] for rows in (40, 9, 1.2, 1, 100)]
    assert found == pytest.approx([0.0202575, 0.0072245, 0.0, 0.025, 0.025], rel=1e-3, abs=1e-9)
    without = [label_report(*(np.delete(x, row, 0) for x in (pred, truth))) for row in range(40)]
    for name, (low, high) in bounds.items():
        moves = np.array([left[name] for left in without])
        squares = (moves - moves.mean()) ** 2
        rows = min(40, 1 + 80 / ((squares**2).mean() / squares.mean() ** 2 - 1))
        ends = np.quantile([draw[name] for draw in drawn], tails(0.95, rows))
        assert (low, high) == pytest.approx(tuple(ends), abs=1e-6)


def test_a_mean_that_few_reports_move_is_wider():
    """Four of 200, beside half of them."""
    few = mean_scores({"few": np.arange(200) < 4, "half": np.arange(200) % 2})
    bounds, weights = intervals(few), np.concatenate([*bootstrap_weights(200, 1000, 0)])
    plain = np.quantile(weights[:, :4].sum(1) / 200, (0.025, 0.975))
    assert bounds["few"][0] == 0.0 < plain[0] and bounds["few"][1] > plain[1]
    assert bounds["half"] == tuple(np.quantile(weights[:, 1::2].sum(1) / 200, (0.025, 0.975)))
    difference = paired(few, mean_scores({"few": np.zeros(200), "half": np.zeros(200)}))
    assert difference["few"].high == 0.0 and difference["few"].low == -bounds["few"][1]


def test_bleu_has_as_much_on_both_sides():
    rng = np.random.default_rng(0)
    reports = [" ".join(rng.choice([*"abcd"], size)) for size in rng.integers(5, 25, 200)]
    scores = text_scores(reports, reports[::-1], tokenization="space", meteor=False)
    bounds, drawn = intervals(scores), scores(next(bootstrap_weights(200, 1000, 0)))
    for name in ("bleu_1", "bleu_4"):
        ends = values(scores)[name] + np.array([-1.96, 1.96]) * drawn[name].std()
        assert bounds[name] == pytest.approx(tuple(ends), rel=1e-5)
    two = text_scores(["a b", "a c d"], ["a b", "c d"], tokenization="space", meteor=False)
    assert intervals(two)["bleu_1"][0] < values(two)["bleu_1"], "Student's t of two is far out"


def test_chunks_change_nothing(monkeypatch):
    pred, truth = random_labels(2, 30)
    scores = label_scores(pred, truth)
    whole = intervals(scores, resamples=100)
    monkeypatch.setattr("rrgclinical.metrics.parts._CHUNK_CELLS", 30 * 7)
    for name, interval in intervals(scores, resamples=100).items():
        assert interval == pytest.approx(whole[name])


def test_copies_of_a_patient_tell_nothing_new():
    """Also with words and means: each study three times, by its patient, is each once."""
    pred, truth = random_labels(7, 50)
    once, thrice = (
        together(
            label_scores(pred[rows], truth[rows]),
            finding_scores(pred[rows], truth[rows]),
            mean_scores({"reward": np.arange(50.0)[rows]}),
        )
        for rows in (np.arange(50), np.tile(np.arange(50), 3))
    )
    of_each = of_patients(thrice, [f"p{row % 50}" for row in range(150)])
    mine, theirs = intervals(of_each, resamples=100), intervals(once, resamples=100)
    # counts of findings are three times as many, so their draws are less
    plain = [name for name in theirs if "/" not in name]
    assert {n: mine[n] for n in plain} == {n: pytest.approx(theirs[n]) for n in plain}
    low, high = intervals(thrice, resamples=100)["reward"]
    assert high - low < 0.8 * (mine["reward"][1] - mine["reward"][0])
    assert paired(of_each, of_each)["micro_f1"].low == 0.0


def test_a_few_positives_make_nothing_certain():
    truth, pred = np.zeros((200, 14), dtype=np.int8), np.zeros((200, 14), dtype=np.int8)
    truth[:3] = 1
    pred[:3, 4] = 1
    bounds = intervals(finding_scores(pred, truth))
    for rate in ("precision", "recall", "f1"):
        low, high = bounds[f"{rate}/Cardiomegaly"]
        assert low == 0.0 and high > 0.3, "of three, none was found"
        low, high = bounds[f"{rate}/Edema"]
        assert 0.1 < low < 0.8 and high == 1.0, "of three, all were found"
    assert bounds["support/Edema"] == bounds["support/Cardiomegaly"]
    assert bounds["f1/micro"][0] == intervals(label_scores(pred, truth))["micro_f1"][0]


def test_averages_over_frequent_labels_by_hand():
    truth = np.zeros((30, 14), dtype=np.int8)
    truth[:9, 0], truth[:10, 1], truth[:20, 9] = 1, 3, 1
    pred = truth.copy()
    pred[:5, 1] = 0
    assert frequent_labels(truth) == [1, 9]
    frequent = values(label_scores(pred, truth, frequent_labels(truth)))
    assert frequent["macro_recall_frequent"] == pytest.approx((1 / 2 + 1) / 2)
    assert frequent["macro_f1_frequent"] == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.parametrize(("differing", "resamples"), [(5, 99), (6, 99), (7, 99), (7, 128)])
def test_p_is_the_share_of_all_swaps(differing: int, resamples: int):
    pred, truth = random_labels(8, 30)
    truth[:differing, 1] = 1
    other = pred.copy()
    other[:differing], pred[:differing] = truth[:differing], 0
    other[1], pred[1] = 0, truth[1]
    first, second = label_scores(pred, truth), label_scores(other, truth)
    result = paired(first, second, resamples=resamples)
    for name in ("micro_f1", "macro_f1_13", "sample_recall", "accuracy"):
        drawn = []
        for swapped in itertools.product((False, True), repeat=differing):
            rows = np.flatnonzero(swapped)
            mine, theirs = pred.copy(), other.copy()
            mine[rows], theirs[rows] = other[rows], pred[rows]
            gap = label_report(theirs, truth)[name] - label_report(mine, truth)[name]
            drawn.append(abs(gap) >= abs(result[name].difference) - 1e-12)
        p = result[name].p_value
        if differing < 6:
            assert p is None
        elif 2**differing <= resamples:
            assert p == np.mean(drawn)
        else:
            assert p == pytest.approx(np.mean(drawn), abs=0.15)
            assert p * (resamples + 1) == pytest.approx(round(p * (resamples + 1)))


def test_a_metric_that_differs_in_few_reports_has_no_p():
    pred, truth = random_labels(9, 40)
    other = pred.copy()
    other[:3] = truth[:3]
    each = np.arange(40.0)
    first, second = (
        together(label_scores(labels, truth), mean_scores({"words": words}))
        for labels, words in ((pred, each), (other, each + 1.0))
    )
    result = paired(first, second)
    assert result["micro_f1"].p_value is None and result["words"].p_value == 1 / 1001


def test_a_subgroup_is_the_reports_themselves():
    """Also its intervals: draws stay among its members."""
    pred, truth = random_labels(5, 60)
    members = truth[:, 13] != 1
    group, alone = (
        subgroup(label_scores(pred, truth), members),
        label_scores(pred[members], truth[members]),
    )
    assert group.reports == alone.reports == members.sum()
    assert values(group) == pytest.approx(values(alone))
    means = subgroup(mean_scores({"f1": single_report_f1(pred, truth)}), members)
    assert values(means)["f1"] == pytest.approx(values(alone)["sample_f1"])
    found, wanted = intervals(group, resamples=50), intervals(alone, resamples=50)
    assert found == {name: pytest.approx(interval) for name, interval in wanted.items()}


def test_means_share_their_draws_with_the_labels():
    """A metric given as a value of each report has the interval of the same metric counted."""
    pred, truth = random_labels(6, 40)
    each = mean_scores({"mean_f1": single_report_f1(pred, truth)})
    joined = intervals(together(label_scores(pred, truth), each), resamples=50, seed=1)
    assert joined["mean_f1"] == pytest.approx(joined["sample_f1"])
    assert joined["mean_f1"] == pytest.approx(intervals(each, resamples=50, seed=1)["mean_f1"])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: label_report(PRED[:2], TRUTH), "labels of 2 reports against 3"),
        (lambda: intervals(label_scores(PRED, TRUTH), resamples=0), "resamples is 0"),
        (lambda: mean_scores({"a": [1.0, np.nan]}), "a of report 1 is nan"),
        (lambda: mean_scores({"a": []}), "wanted one"),
        (lambda: together(ONE, mean_scores({"b": [1.0, 2.0]})), "over the same reports"),
        (lambda: values(together(ONE, ONE)), "two parts have a metric 'a'"),
        (lambda: paired(ONE, mean_scores({"a": [1.0, 2.0]})), "1 reports against 2"),
        (lambda: subgroup(ONE, np.array([False])), "sub-group of 0 reports"),
        (lambda: of_patients(ONE, ["a", "b"]), "patients of 2 reports; wanted 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
