"""f1chexbert and ours on the same weight file: ids, labels, accuracies and reports."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from transformers import BertConfig

from rrgclinical.labels import CHEXPERT_5, NO_FINDING, OBSERVATIONS
from rrgclinical.metrics import finding_scores, label_report, label_scores, single_report_f1, values
from rrgclinical.official import OfficialCheXbert
from tests.rrgclinical.chexbert import tiny
from tests.rrgclinical.oracle.base import asked, write_chexbert
from tests.rrgclinical.oracle.conftest import REPORTS

# The package's tokenizer stops at a lone surrogate.
EDGES = [text for text in tiny.ADVERSARIAL if "\ud800" not in text]
TEXTS = [*EDGES, *tiny.reports(REPORTS - len(EDGES), seed=5)]
FIVE = [1, 4, 5, 7, 9]
PARTS = {"micro": "micro avg", "macro": "macro avg"}
RATES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}


@pytest.fixture(scope="module")
def pair(oracle, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chexbert")
    config = BertConfig() if base else tiny.CONFIG
    (write_chexbert if base else tiny.write_folder)(folder)
    ours = tiny.labeller(folder, config=config)
    return ours, OfficialCheXbert(folder / "weights.pth", folder, config=config, worker=oracle)


@pytest.fixture(scope="module")
def labels(pair):
    return pair[1].label(TEXTS)


def reports_of(official, candidates, references):
    return asked(official, "chexbert_f1", candidates=candidates, references=references)


def test_ids_are_official(pair):
    ours, official = pair
    assert [one.ids for one in ours.tokenize(TEXTS)] == asked(
        official, "chexbert_ids", reports=TEXTS
    )


@pytest.mark.parametrize("size", [1, 4, 16])
def test_labels_are_official(pair, labels, size):
    ours, _ = pair
    assert len(TEXTS) >= 200
    found = [ours.label(TEXTS[k : k + size]) for k in range(0, len(TEXTS), size)]
    assert np.concatenate(found).tolist() == labels.tolist()
    for column in range(13):
        assert set(labels[:, column]) == {0, 1, 2, 3}
    assert set(labels[:, 13]) == {0, 1}


def test_reports_are_official(pair, labels):
    """Candidates against references one place on, so that they differ."""
    _, official = pair
    candidates, references = TEXTS[30:90], TEXTS[31:91]
    accuracy, each, fourteen, five = reports_of(official, candidates, references)
    p, t = labels[30:90], labels[31:91]
    found = label_report(p, t)
    assert found["exact_5"] == pytest.approx(accuracy, abs=1e-12)
    for suffix, report in (("", fourteen), ("_5", five)):
        for ours_part, theirs_part in PARTS.items():
            for rate, name in RATES.items():
                wanted = report[theirs_part][name]
                assert found[f"{ours_part}_{rate}{suffix}"] == pytest.approx(wanted, abs=1e-12)
    assert found["sample_f1"] == pytest.approx(fourteen["samples avg"]["f1-score"], abs=1e-12)
    assert each == (np.isclose(p[:, FIVE] % 2, t[:, FIVE] % 2).all(1) * 1.0).tolist()


def test_one_pair_is_official(pair, labels):
    """EditGRPO's reward: micro-F1 over 14 of a single pair."""
    _, official = pair
    for row in range(6):
        _, _, fourteen, _ = reports_of(official, [TEXTS[row + 40]], [TEXTS[row + 50]])
        found = single_report_f1(labels[[row + 40]], labels[[row + 50]])
        assert found[0] == pytest.approx(fourteen["micro avg"]["f1-score"], abs=1e-12)


# scikit-learn's precision, recall and F1 on the same label matrices, degenerate ones included.
NAMES = ("precision", "recall", "f1")
SETS = {"": range(14), "_13": [c for c in range(14) if c != NO_FINDING], "_5": CHEXPERT_5}
SCRIPT = """
import json, sys
from numpy import asarray
from sklearn.metrics import precision_recall_fscore_support as rates

names = {"micro": "micro", "macro": "macro", "samples": "samples", "each": None}
json.dump([
    {
        name: [asarray(part).tolist() for part in rates(*pair, average=how, zero_division=0)]
        for name, how in names.items()
    }
    for pair in json.load(sys.stdin)
], sys.stdout)
"""


def pairs() -> list[tuple[np.ndarray, np.ndarray]]:
    """Random labels of several densities, blank systems, full ones, one report."""
    rng = np.random.default_rng(0)
    shapes = [(density, reports) for density in (0.05, 0.3, 0.9) for reports in (1, 7, 60)]
    found = [
        tuple(
            (rng.random((reports, 14)) < density) * rng.choice([1, 3], (reports, 14))
            for _ in range(2)
        )
        for density, reports in shapes
    ]
    blank, full, normal = (np.zeros((5, 14), dtype=int) for _ in range(3))
    full[:], normal[:, NO_FINDING] = 1, 1
    kinds = (blank, full, normal)
    return found + [(truth, pred) for truth in kinds for pred in kinds]


@pytest.fixture(scope="module")
def theirs(oracle_python):
    asked = [
        [(label[:, list(columns)] % 2).tolist() for label in pair]
        for pair in pairs()
        for columns in SETS.values()
    ]
    run = subprocess.run(
        [str(oracle_python), "-W", "ignore", "-c", SCRIPT],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(run.stdout)


def test_rates_are_scikit_learns(theirs):
    answers = iter(theirs)
    for truth, pred in pairs():
        ours = values(label_scores(pred, truth))
        for suffix in SETS:
            answer = next(answers)
            for average, name in (("micro", "micro"), ("macro", "macro"), ("samples", "sample")):
                for rate, wanted in zip(NAMES, answer[average], strict=False):
                    found = ours[f"{name}_{rate}{suffix}"]
                    assert found == pytest.approx(wanted, abs=1e-12), (name, rate, suffix)


def test_findings_are_scikit_learns(theirs):
    for (truth, pred), answer in zip(pairs(), theirs[:: len(SETS)], strict=True):
        ours = values(finding_scores(pred, truth))
        for rate, column in zip((*NAMES, "support"), answer["each"], strict=True):
            found = [ours[f"{rate}/{name}"] for name in OBSERVATIONS]
            assert found == pytest.approx(column, abs=1e-12), rate
