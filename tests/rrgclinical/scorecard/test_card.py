"""The numbers of a scorecard, by hand and by the plain metrics, and its tables."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rrgclinical import OBSERVATIONS, build_labeller, score
from rrgclinical.metrics import label_report, label_scores, values
from rrgclinical.metrics.registry import SEVEN
from rrgclinical.scorecard import (
    CardSettings,
    Pairs,
    Scorecard,
    SystemReading,
    as_csv,
    as_json,
    as_latex,
    as_text,
    joined_truth,
    read_predictions,
    read_references,
    report_rows,
    scorecard,
    tables,
)
from rrgclinical.severity import Severity
from rrgclinical.text import text_scores

REFERENCES = [
    "The heart is enlarged. Small left pleural effusion.",
    "No acute disease. The lungs are clear.",
    "Mild pulmonary edema.",
    "Normal chest.",
    *["No acute disease."] * 16,
    "Right pneumothorax.",
]
REPORTS = {
    "A & <b>": ["Large heart.", *["No acute disease."] * 19, "Right pneumothorax."],
    "template": ["No acute disease."] * 21,
}
LABELLER = build_labeller("rules")
TRUTH = LABELLER.label(REFERENCES)


def card(**more: object) -> Scorecard:
    ids = [f"s{i}" for i in range(len(REFERENCES))]
    pairs = Pairs(ids, [[r] for r in REFERENCES], REPORTS, notes=["<i>one</i> note"])
    readings = {
        name: SystemReading(LABELLER.label(texts), {"entity_f1": np.linspace(0, 1, len(texts))})
        for name, texts in REPORTS.items()
    }
    return scorecard(pairs, TRUTH, readings, CardSettings(resamples=50), **more)  # type: ignore[arg-type]


def test_values_are_those_of_the_metrics_and_lie_in_their_intervals() -> None:
    made = card()
    for name, texts in REPORTS.items():
        labels = LABELLER.label(texts)
        # No Finding alone has ten positives here
        frequent = [OBSERVATIONS.index("No Finding")]
        wanted = values(label_scores(labels, TRUTH, frequent)) | {"entity_f1": 0.5}
        found = made.groups[0].systems[name]
        assert {k: v.value for k, v in found.items()} == pytest.approx(wanted)
        assert all(v.low - 1e-9 <= v.value <= v.high + 1e-9 for v in found.values())
    assert found["micro_f1"].value > 0.7 and found["micro_f1_13"].value == 0.0


def test_two_lists_have_the_values_of_the_scorecard() -> None:
    reports = REPORTS["A & <b>"]
    for references in (REFERENCES, ["No acute disease."] * len(reports)):
        truth = LABELLER.label(references)
        severity = np.array([one.score for one in Severity().judge(reports, references)])
        words = text_scores(reports, references, meteor=False)
        reading = SystemReading(LABELLER.label(reports), {"severity": severity}, words)
        pairs = Pairs(list(map(str, range(len(reports)))), [[r] for r in references], {"": reports})
        made = scorecard(pairs, truth, {"": reading}, CardSettings(resamples=20))
        want = {name: one.value for name, one in made.groups[0].systems[""].items()}
        assert score(reports, tuple(references)) == want
        assert "bleu_4" in want and ("macro_f1_13" in want) is (references is REFERENCES)
    assert score(REFERENCES, REFERENCES)["micro_f1_13"] == 1.0


@pytest.mark.parametrize(
    ("reports", "references", "message"),
    [
        (["a.", "b."], ["a."], "2 reports and 1 references; wanted one for each"),
        ([], [], "0 reports and references; wanted at least one of each"),
        (["a.", "b."], ["a.", " \n"], "references[1] is ' \\n', and no report is right or wrong"),
        (["a."], ["NaN"], "references[0] is 'NaN', and no report is right or wrong"),
        (["a.", None], ["a.", "b."], "reports[1] is NoneType; wanted str"),
        ("a.", ["a."], "reports is one str; wanted a sequence of str"),
    ],
)
def test_lists_that_cannot_be_scored_are_one_line(
    reports: object, references: object, message: str
) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        score(reports, references)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_sub_groups_by_their_rules() -> None:
    groups = {group.name: group for group in card().groups}
    assert {name: group.n for name, group in groups.items()} == {
        **{"all": 21, "normal": 18, "abnormal": 3, "rare": 3}
    }
    assert "prevalence below 5% in the truth (Cardiomegaly, Edema, Pneumo" in groups["rare"].rule
    rows = [0, 2, 20]
    wanted = label_report(LABELLER.label([REPORTS["A & <b>"][i] for i in rows]), TRUTH[rows])
    found = groups["abnormal"].systems["A & <b>"]
    assert {k: v.value for k, v in found.items() if k != "entity_f1"} == pytest.approx(wanted)
    # nothing to be found: no F1 of findings, and none of 0
    normal = groups["normal"].systems["template"]
    assert normal["micro_f1"].value == 1.0 and normal["exact_5"].value == 1.0
    assert not {"micro_f1_13", "sample_f1_5", "macro_f1"} & set(normal)


def test_the_mean_of_editgrpos_seven_stands_where_all_are_measured() -> None:
    """Tables 1, 2, 5 and 6 of the paper end with it; it is drawn with its parts."""
    (texts, *_), count = REPORTS.values(), len(REFERENCES)
    scores = {name: np.linspace(0, 1, count) ** i for i, name in enumerate(SEVEN[4:], 1)}
    pairs = Pairs([str(i) for i in range(count)], [[r] for r in REFERENCES], {"it": texts})

    def of(scores: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
        read = {"it": SystemReading(LABELLER.label(texts), scores)}
        made = scorecard(pairs, TRUTH, read, CardSettings(resamples=50))
        return {group.name: group.systems["it"] for group in made.groups}

    rows = of(scores)["all"]
    mean = rows["mean_of_seven"]
    assert mean.value == pytest.approx(np.mean([rows[name].value for name in SEVEN]))
    assert mean.low < mean.value < mean.high
    assert "mean_of_seven" not in of(scores)["normal"], "macro-F1 is undefined there"
    del scores["green"]
    assert "mean_of_seven" not in of(scores)["all"]


def test_findings_and_comparisons() -> None:
    made = card()
    edema = made.findings[OBSERVATIONS.index("Edema")]
    heart = made.findings[OBSERVATIONS.index("Cardiomegaly")]
    assert edema.positives == 1 and edema.systems["A & <b>"]["recall"].value == 0.0
    assert heart.systems["A & <b>"]["f1"].value == 1.0
    (comparison,) = made.comparisons
    difference = comparison.differences["micro_f1_13"]
    first, second = (made.groups[0].systems[n]["micro_f1_13"].value for n in REPORTS)
    assert difference.difference == pytest.approx(second - first) and difference.difference < 0
    # the reports of three studies differ in labels, those of all in entities, by nothing
    p_values = {key: of_metric.p_value for key, of_metric in comparison.differences.items()}
    assert p_values.pop("entity_f1") is None and set(p_values.values()) == {None}
    assert any("p is - where two systems differ in fewer than 6 studies" in n for n in made.notes)
    _, headline, *rest = as_text(made).splitlines()
    assert any(line.endswith("p -") for line in rest) and "p -" not in headline
    assert "0 tests of differences" in as_text(made)


def two_systems(studies: int, patients: Sequence[str] = ()) -> Scorecard:
    rng = np.random.default_rng(1)
    truth = (rng.random((studies, 14)) < 0.3).astype(np.int8)
    readings = {
        name: SystemReading(np.where(rng.random(truth.shape) < wrong, 1 - truth, truth))
        for name, wrong in (("one", 0.2), ("two", 0.25), ("three", 0.3))
    }
    ids = [str(i) for i in range(studies)]
    pairs = Pairs(ids, [[""]] * studies, {name: ids for name in readings}, patients=patients)
    return scorecard(pairs, truth, readings, CardSettings(resamples=200))


def test_the_head_says_the_draws_the_tests_and_who_read_labels() -> None:
    text = as_text(two_systems(240))
    head, headline = text.splitlines()[:2]
    tests = int(re.search(r"; (\d+) tests of differences; labels by rules, not Ch", head)[1])
    # two of them stand in the headline too
    assert tests == len(re.findall(r" p [01]\.\d{3}", text)) - 2
    assert head.startswith("240 studies; 95 % bootstrap intervals over studies; ")
    assert "not CheXbert" in headline and "two - one -0." in headline
    assert "three - one -0." in headline and "three - two" not in headline
    assert f"{tests} p-values" in text and f"{0.05 * tests:.1f} of {tests} are below" in text
    (power,) = [line for line in text.splitlines() if line.startswith("240 studies see 5 points")]
    assert [int(share) < 99 for share in re.findall(r"(\d+)% of tests", power)] == [True] * 3


def test_power_is_that_of_the_normal_distribution() -> None:
    """Five points with a standard error of 5 are seen in 17 % of tests, of 1 in all."""
    card = two_systems(60)
    for error, wanted in ((0.05, "17% of tests, 1 of 6"), (0.01, "100% of tests")):
        width = {"low": -1.96 * error, "high": 1.96 * error}
        (first, *_) = card.comparisons
        changed = replace(first.differences["micro_f1_13"], **width)
        one = replace(first, differences={"micro_f1_13": changed})
        assert wanted in as_text(replace(card, comparisons=[one]))


def test_patients_are_drawn_where_they_are_known() -> None:
    """All studies of a patient together; a patient each is as if none was known."""
    alone, each = two_systems(60), two_systems(60, [f"p{i}" for i in range(60)])
    few = two_systems(60, [*(f"p{i // 12}" for i in range(48)), *[""] * 12])
    assert (alone.patients, each.patients, few.patients) == (None, 60, 16)
    assert alone.groups == each.groups and alone.findings == each.findings
    assert alone.comparisons == each.comparisons
    assert few.groups[0].systems["one"] != alone.groups[0].systems["one"]
    assert "60 studies; 95 % bootstrap intervals over 16 patients" in as_text(few)
    assert "Intervals resample patients only" in as_text(few)


def test_what_keeps_a_perfect_system_from_1_is_told() -> None:
    heart, edema, pneumothorax, none = (
        OBSERVATIONS.index(n) for n in ("Cardiomegaly", "Edema", "Pneumothorax", "No Finding")
    )
    truth = np.zeros((300, 14), dtype=np.int8)
    truth[:100, heart] = truth[100:197, pneumothorax] = truth[197:200, edema] = 1
    truth[200:, none] = 1
    ids = [str(i) for i in range(300)]
    pairs = Pairs(ids, [[""]] * 300, {"perfect": [""] * 300})
    made = scorecard(pairs, truth, {"perfect": SystemReading(truth)})
    assert "training seeds is not included" in made.notes[0]
    macro, sample, few = made.notes[1:]
    assert macro.startswith("10 of 14 observations are positive in no reference; macro")
    assert macro.endswith("at most 0.286 over 14, 0.231 over 13, 0.400 over 5.")
    assert sample.endswith("at most 1.000 over 14, 0.667 over 13, 0.343 over 5.")
    assert "fewer than 10 positives (Edema (3))" in few
    # the tables say the same
    found = made.groups[0].systems["perfect"]
    reached = [
        found[f"{kind}_f1{s}"].value for kind in ("macro", "sample") for s in ("", "_13", "_5")
    ]
    assert reached == pytest.approx([0.286, 0.231, 0.4, 1.0, 0.667, 0.343], abs=5e-4)
    rows = {row[0] for _, table in tables(made) for row in table}
    assert {"macro-F1-14 (rules) (at most 0.286)", "sample-F1-14 (rules)"} <= rows
    assert made.groups[2].ceilings["sample_f1_5"] == pytest.approx(103 / 200)
    bounds = {f.name: f.systems["perfect"]["f1"] for f in made.findings}
    assert bounds["Edema"].low < 0.8 and bounds["Edema"].value == bounds["Edema"].high == 1.0
    assert 0.97 < bounds["Pneumothorax"].low < 1.0
    (label,) = [m.label for m in made.metrics if m.key == "macro_f1_frequent"]
    assert label == "macro-F1, labels with 10 positives or more: 3 of 14 (rules)"
    assert found["macro_f1_frequent"].value == 1.0


def test_several_references_vote_and_leave_no_finding_blank_where_they_disagree() -> None:
    labels = np.zeros((4, 14), dtype=np.int8)
    labels[0, 0], labels[1, 1], labels[2, 1], labels[3, 2] = 2, 1, 3, 1
    truth = joined_truth(labels, np.array([0, 1, 1, 1]))
    assert truth[0].tolist() == [2, *[0] * 13] and truth[1].tolist() == [0, 1, *[0] * 12]
    labels = np.zeros((5, 14), dtype=np.int8)
    edema, devices, none = (
        OBSERVATIONS.index(n) for n in ("Edema", "Support Devices", "No Finding")
    )
    labels[0, edema] = labels[1, none] = 1
    labels[2, devices] = labels[3, none] = 1
    # one reference stays as it is
    labels[4, [edema, none]] = 1
    truth = joined_truth(labels, np.array([0, 0, 1, 1, 2]))
    assert truth[:, none].tolist() == [0, 1, 1]
    assert truth[:, edema].tolist() == [1, 0, 1] and truth[1, devices] == 1


def test_a_metric_that_cannot_run_is_a_dash_and_a_line() -> None:
    made = card(absent={"green": "needs an endpoint", "ratescore": "needs <weights>"})
    text = as_text(made)
    (row,) = [line for line in text.splitlines() if line.startswith("GREEN ")]
    assert row.split()[1:] == ["-", "-"]
    assert "GREEN: -, needs an endpoint" in text and "RaTEScore: -, needs <weights>" in text
    assert "21 studies; 95 % bootstrap" in text and "normal: no positive among the 13" in text
    wider = replace(made, settings=replace(made.settings, level=0.99))
    assert "21 studies; 99 % bootstrap intervals" in as_text(wider)


def test_files_hold_every_number() -> None:
    made = card()
    read = json.loads(as_json(made))
    wanted = made.groups[2].systems["A & <b>"]["micro_f1_13"]
    found = read["groups"][2]["systems"]["A & <b>"]["micro_f1_13"]
    assert found == {"value": wanted.value, "low": wanted.low, "high": wanted.high}
    rows = {
        (r["group"], r["system"], r["metric"]): r for r in csv.DictReader(io.StringIO(as_csv(made)))
    }
    row = rows["abnormal", "A & <b>", "micro_f1_13"]
    assert (float(row["value"]), row["n"]) == (wanted.value, "3")
    assert {group for group, *_ in rows} >= {"all", "rare", "finding: Edema"}


def test_latex_is_whole(tmp_path: Path) -> None:
    text = as_latex(card())
    assert (
        r"A \& \textless{}b\textgreater{}" in text
        and text.count(r"\toprule") == text.count(r"\end{table}") >= 5
    )
    bare = [line for line in text.splitlines() if not line.startswith("%")]
    assert not any("%" in line.replace(r"\%", "") for line in bare)
    if shutil.which("pdflatex"):
        page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + text
        (tmp_path / "t.tex").write_text(page + "\\end{document}")
        subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True)


def test_reports_are_kept_so_that_they_can_be_scored_again(tmp_path: Path) -> None:
    ids = ["a", "b"]
    path = tmp_path / "predictions.jsonl"
    systems = {"A": ["p", ""], "B": ["q", "r"]}
    known = ["patient 7", ""]
    pairs = Pairs(ids, [["x\u2028y"], ["one", "two"]], systems, patients=known)
    labels, scores = TRUTH[:2], {"m": np.array([0.5, 1.0])}
    readings = {name: SystemReading(labels, scores) for name in systems}
    rows = report_rows(pairs, labels, readings, {"A": ["<think>x</think>p", ""]})
    path.write_text("".join(rows), encoding="utf-8")
    assert {n: (r.ids, r.texts) for n, r in read_predictions(path).items()} == {
        "A": (ids, [["p"], [""]]),
        "B": (ids, [["q"], ["r"]]),
    }
    truth = read_references(path)
    assert (truth.ids, truth.texts, truth.labels) == (ids, [["x\u2028y"], ["one", "two"]], None)
    # by number: the file needs no name of a patient
    assert truth.patients == ["0", ""] and "patient 7" not in path.read_text()
    first, second = (json.loads(line) for line in path.read_text().split("\n")[:2])
    assert first["labels_true"] == TRUTH[0].tolist() and first["scores"] == {"m": 0.5}
    assert first["completion"] == "<think>x</think>p" and "completion" not in second
