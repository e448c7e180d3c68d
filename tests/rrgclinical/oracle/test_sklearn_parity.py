"""scikit-learn's precision, recall and F1 on the same label matrices, degenerate ones included."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from rrgclinical.labels import CHEXPERT_5, NO_FINDING, OBSERVATIONS
from rrgclinical.metrics import finding_scores, label_scores, values

RATES = ("precision", "recall", "f1")
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
                for rate, wanted in zip(RATES, answer[average], strict=False):
                    found = ours[f"{name}_{rate}{suffix}"]
                    assert found == pytest.approx(wanted, abs=1e-12), (name, rate, suffix)


def test_findings_are_scikit_learns(theirs):
    for (truth, pred), answer in zip(pairs(), theirs[:: len(SETS)], strict=True):
        ours = values(finding_scores(pred, truth))
        for rate, column in zip((*RATES, "support"), answer["each"], strict=True):
            found = [ours[f"{rate}/{name}"] for name in OBSERVATIONS]
            assert found == pytest.approx(column, abs=1e-12), rate
