"""Evidence by construction and by drawing, and the announced rule on synthetic numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.human_codes import CODED
from experiments.iu_evidence.arms import claims_of
from experiments.iu_evidence.data import (
    FINDINGS,
    FOLDS,
    LEVELS,
    Evidence,
    Reports,
    auc_of,
    distance_of,
    fold_of,
    fold_studies,
    levels,
    patient,
    read_reports,
    shares,
    words_of,
)
from experiments.iu_evidence.judge import (
    ABNORMAL,
    ALL,
    CODED_COLUMNS,
    FAILS,
    HOLDS,
    SEVEN,
    UNDECIDED,
    Difference,
    decide,
    difference,
    measured,
    verdict,
)
from experiments.iu_evidence.report import told
from experiments.jobs.results import Result
from experiments.measures import mean_of
from rrgclinical.metrics import label_report
from rrgtrain.errors import UserError
from tests.real_data import IU_XRAY

SENTENCES = (
    "The heart is enlarged.",
    "There is a small left pleural effusion.",
    "Right lower lobe atelectasis.",
    "The lungs are clear.",
    "A right pneumothorax is present.",
    "No pleural effusion or pneumothorax.",
)


def iu_directory(root: Path, studies: int = 40) -> Path:
    """Write `studies` made-up studies as annotation, sections and human codes."""
    rng = np.random.default_rng(0)
    annotation: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    columns = [column for columns in CODED.values() for column in columns]
    rows, sections = [], []
    for number in range(1, studies + 1):
        report = " ".join(rng.choice(SENTENCES, size=2, replace=False))
        split = ("train", "train", "val", "test")[number % 4]
        annotation[split].append({"id": f"CXR{number}_IM-{number:04}", "report": report})
        sections.append({"id": f"CXR{number}", "findings": report, "impression": ""})
        rows.append(
            {"filename": f"CXR{number}"} | {c: str(int(c.lower() in report)) for c in columns}
        )
    root.mkdir(parents=True, exist_ok=True)
    (root / "annotation.json").write_text(json.dumps(annotation))
    (root / "sections.jsonl").write_text("\n".join(map(json.dumps, sections)))
    with (root / "mesh_labels_14.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["filename", *columns])
        writer.writeheader()
        writer.writerows(rows)
    return root


def planted(predicted: np.ndarray, truth: np.ndarray, **facts: Any) -> Result:
    """A result of class ids [R, 14]; the codes are the truth's of the coded columns."""
    studies = len(truth)
    own = {
        "predicted": ["".join(map(str, row)) for row in predicted],
        "truth": ["".join(map(str, row)) for row in truth],
        "codes": ["".join(map(str, row)) for row in truth[:, CODED_COLUMNS]],
        "bleu4": [0.1] * studies,
        "words": [30] * studies,
        "sentences": [4] * studies,
        "unheard": [1] * studies,
        "curves": {},
    }
    return Result({}, "command", "abc", {**own, **facts})


def drawn_auc(drawn: np.ndarray, present: np.ndarray) -> float:
    """By counting pairs, ties half: nothing of the construction."""
    positive, negative = drawn[present], drawn[~present]
    above = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    return float(above)


def made_up(studies: int) -> Reports:
    rng = np.random.default_rng(1)
    truth = (rng.random((studies, 14)) < 0.3).astype(np.int8)
    ids = [f"CXR{number}_IM-{number:04}" for number in range(studies)]
    return Reports(ids, ["Text."] * studies, truth, np.zeros((studies, 8), bool))


@pytest.mark.parametrize("auc", [0.65, 0.85, 1.0])
def test_the_levels_have_the_auc_asked_for(auc) -> None:
    reports = made_up(2000)
    present = reports.truth[:, FINDINGS].astype(bool)
    drawn = levels(reports.ids, present, auc, draw=0)
    assert drawn_auc(drawn.ravel()[:8000], present.ravel()[:8000]) == pytest.approx(auc, abs=0.01)
    if auc < 1:
        assert auc_of(shares(distance_of(auc))) == pytest.approx(auc, abs=1e-9)
        assert set(np.unique(drawn)) == set(range(LEVELS)), "every level occurs"
        assert np.array_equal(drawn, levels(reports.ids, present, auc, draw=0))
        assert not np.array_equal(drawn, levels(reports.ids, present, auc, draw=1))


def test_folds_hold_whole_patients_and_nearly_as_many() -> None:
    ids = [f"CXR{n}_IM-{k}" for n in range(100) for k in range(1 + n % 2)]
    folds = fold_of(ids)
    of_patient: dict[str, set[int]] = {}
    for name, fold in zip(ids, folds, strict=True):
        of_patient.setdefault(name.split("_")[0], set()).add(int(fold))
    assert all(len(folds) == 1 for folds in of_patient.values())
    sizes = np.bincount([next(iter(f)) for f in of_patient.values()], minlength=FOLDS)
    assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(fold_of(ids[::-1])[::-1], folds), "the order of the file does not count"


def test_a_fold_keeps_train_validation_and_test_apart() -> None:
    reports, tested = made_up(100), []
    reports.truth[:30, list(FINDINGS)] = 0
    rows = reports.truth[:, FINDINGS].any(1)
    normal = {
        patient(name) for name, abnormal in zip(reports.ids, rows, strict=True) if not abnormal
    }
    for fold in range(FOLDS):
        studies = fold_studies(reports, fold, Evidence(draws=2))
        people = {name: {patient(e["id"]) for e in entries} for name, entries in studies.items()}
        assert not people["train"] & people["val"] and not people["test"] & people["val"]
        assert not people["test"] & people["train"]
        assert set().union(*people.values()) == {patient(name) for name in reports.ids}
        names = [e["id"] for entries in studies.values() for e in entries]
        assert len(set(names)) == len(names)
        draws = [patient(entry["id"]) for entry in studies["train"]]
        count = {name: draws.count(name) for name in people["train"]}
        assert all(count[name] == (1 if name in normal else 2) for name in count)
        tested += sorted(people["test"])
    assert sorted(tested) == sorted(map(patient, reports.ids)), "each is held out once"


def test_evidence_of_held_out_studies_is_that_of_every_other_data_set() -> None:
    reports = made_up(60)
    plain = fold_studies(reports, 1, Evidence())
    once, mixed = (
        fold_studies(reports, 1, e) for e in (Evidence(draws=1), Evidence(shuffled=True))
    )
    for name in ("val", "test"):
        assert plain[name] == once[name] == mixed[name]
    assert plain["train"][: len(once["train"])] == once["train"]
    by_id = {e["id"]: e for e in plain["train"]}
    moved = [e["indication"] != by_id[e["id"]]["indication"] for e in mixed["train"]]
    assert np.mean(moved) > 0.9, "shuffled: the evidence of another study"
    for k in range(1, 7):
        own = [sorted(e["indication"] for e in d["train"] if e["id"].endswith(f"_k{k}"))
               for d in (plain, mixed)]  # fmt: skip
        assert len(own[0]) == len(own[1])


def test_evidence_is_of_the_study_that_it_stands_beside() -> None:
    reports = made_up(60)
    truth = dict(zip(reports.ids, reports.truth, strict=True))
    wrong = [
        entry["id"]
        for entries in fold_studies(reports, 2, Evidence(auc=1.0, draws=2)).values()
        for entry in entries
        if entry["indication"] != words_of(4 * truth[entry["id"].split("_k")[0]][list(FINDINGS)])
    ]
    assert not wrong


def test_files_are_read_whole_and_what_lacks_is_told(tmp_path) -> None:
    root = iu_directory(tmp_path / "iu", 12)
    reports = read_reports(root)
    assert len(reports.ids) == 12 and reports.codes.shape == (12, 8) and reports.codes.any()
    assert read_reports(root, 5).ids == reports.ids[:5]
    with pytest.raises(UserError, match="no IU X-Ray reports at .*--data"):
        read_reports(tmp_path)
    rows = (root / "mesh_labels_14.csv").read_text().splitlines()
    (root / "mesh_labels_14.csv").write_text("\n".join(rows[:-1]))
    with pytest.raises(UserError, match="1 of 12 studies have no human code"):
        read_reports(root)


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
def test_the_real_studies_carry_evidence_of_the_auc_asked_for() -> None:
    reports = read_reports(IU_XRAY)
    assert len(reports.ids) == 2365
    studies = fold_studies(reports, 0, Evidence())
    row = {name: truth for name, truth in zip(reports.ids, reports.truth, strict=True)}
    entries = studies["train"][: len(studies["train"]) // 2]
    drawn = np.array([["vwxyz".index(w[1]) for w in e["indication"].split()] for e in entries])
    truth = np.array([row[e["id"].rsplit("_k", 1)[0]] for e in entries])[:, FINDINGS]
    present = np.isin(truth, (1, 3))
    assert drawn_auc(drawn.ravel(), present.ravel()) == pytest.approx(0.85, abs=0.01)


FOUR = (0.03, 0.03, 0.03, 0.03)


def test_the_rule_on_made_up_differences() -> None:
    cases = {
        ("more", 0.03, 0.01, 0.05, FOUR): HOLDS,
        ("more", 0.03, 0.01, 0.05, (0.06, 0.06, 0.02, -0.02)): HOLDS,
        ("more", 0.03, 0.01, 0.05, (0.08, 0.08, -0.02, -0.02)): UNDECIDED,
        ("more", 0.03, 0.01, 0.05, (0.07, 0.0)): UNDECIDED,
        ("more", 0.03, -0.01, 0.07, FOUR): UNDECIDED,
        ("more", 0.015, 0.005, 0.025, FOUR): UNDECIDED,
        ("more", 0.01, 0.005, 0.015, FOUR): FAILS,
        ("more", -0.03, -0.05, -0.01, FOUR): FAILS,
        ("less", -0.03, -0.05, -0.01, (-0.03, -0.03)): HOLDS,
        ("less", 0.03, 0.01, 0.05, (0.03, 0.03)): FAILS,
        ("less", -0.03, -0.07, 0.01, (-0.03, -0.03)): UNDECIDED,
        ("kept", -0.01, -0.019, 0.01, FOUR): HOLDS,
        ("kept", -0.01, -0.03, 0.01, FOUR): UNDECIDED,
        ("kept", -0.04, -0.05, -0.03, FOUR): FAILS,
    }
    wrong = [
        (case, outcome)
        for case, outcome in cases.items()
        if decide(case[0], 0.02, Difference(*case[1:])) != outcome
    ]
    assert not wrong
    assert [verdict(v) for v in ([HOLDS, HOLDS], [HOLDS, UNDECIDED], [UNDECIDED, FAILS], [])] == [
        *(HOLDS, UNDECIDED, FAILS, "measured")
    ]


def test_a_difference_is_paired_over_studies() -> None:
    scatter = np.random.default_rng(0).standard_normal((2, 300))
    first = [mean_of(row + 0.05) for row in scatter]
    between = difference(first, [mean_of(row) for row in scatter])
    assert between.value == pytest.approx(0.05) and between.folds == pytest.approx((0.05, 0.05))
    # what both arms share cancels: unpaired the interval would be a third wide
    assert between.high - between.low < 1e-9
    with pytest.raises(ValueError, match="part 1: 300 units against 299"):
        difference(first, [mean_of(scatter[0]), mean_of(scatter[1][:299])])


def test_measures_are_those_of_the_library() -> None:
    rng = np.random.default_rng(2)
    predicted, truth = rng.integers(0, 4, (2, 200, 14)).astype(np.int8)
    scores = dict.fromkeys(("entity_f1", "match", "severity"), [0.25] * 200)
    result, own = planted(predicted, truth, scores=scores), label_report(predicted, truth)
    names = {
        "f1_13": "micro_f1_13",
        "macro_14": "macro_f1",
        "micro_14": "micro_f1",
        "micro_5": "micro_f1_5",
        "macro_5": "macro_f1_5",
        "recall_13": "micro_recall_13",
        "precision_13": "micro_precision_13",
        "sample_f1": "sample_f1",
    }
    ours = {name: float(measured(result, name, ALL).value()[0]) for name in names}
    assert ours == pytest.approx({name: own[theirs] for name, theirs in names.items()})
    seven = [float(measured(result, name, ALL).value()[0]) for name in SEVEN]
    assert measured(result, "avg", ALL).value()[0] == pytest.approx(sum(seven) / 7)
    assert measured(planted(truth, truth), "mesh", ALL).value()[0] > 0.5
    assert measured(result, "unheard", ALL).value()[0] == 0.25
    truth[:50, :13] = 0
    abnormal = measured(planted(predicted, truth), "f1_13", ABNORMAL)
    assert abnormal.units == int(np.isin(truth[:, :13], (1, 3)).any(1).sum()) <= 150
    flat = planted(truth, truth, flat="1100", draws={"random": "1010", "top": "0011"})
    assert measured(flat, "zero_variance", ALL, "random").value()[0] == 0.5
    assert measured(flat, "zero_variance", ALL, "top").value()[0] == 0.0


def test_no_claim_is_judged_beneath_its_floor_or_of_too_few_folds() -> None:
    (claim,) = claims_of(["not_worse_95"])
    truth = np.tile(np.eye(14, dtype=np.int8)[:13], (20, 1))

    def arm(reward: float, labels: np.ndarray = truth) -> list[Result]:
        scores = dict.fromkeys(("entity_f1", "match", "severity", "reward"), [reward] * len(truth))
        return [planted(labels, truth, scores=scores)] * 4

    above, beneath = {"start_95": arm(2.0)}, {"start_95": arm(1.0)}
    arms = {"fixed_95": arm(1.5), "not_worse_95": arm(1.0), "editgrpo_95": arm(0.0, truth * 0)}
    for results, line in (
        (above | arms, "Verdict: holds."),
        (beneath | arms, "Verdict: not judged, the floor does not hold."),
        ({n: row[:3] for n, row in (above | arms).items()}, "Verdict: not run, 3 of 4 folds"),
    ):
        assert any(told_line.startswith(line) for told_line in told(claim, results))
