"""f1chexbert and ours on the same weight file: ids, labels, accuracies and reports."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import BertConfig

from rrgclinical.metrics import label_report, single_report_f1
from rrgclinical.official import OfficialCheXbert
from tests.rrgclinical.chexbert import tiny
from tests.rrgclinical.oracle.base import write_chexbert
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


def test_ids_are_official(pair):
    ours, official = pair
    assert [one.ids for one in ours.tokenize(TEXTS)] == official.ids(TEXTS)


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
    accuracy, each, fourteen, five = official.f1(candidates, references)
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
        _, _, fourteen, _ = official.f1([TEXTS[row + 40]], [TEXTS[row + 50]])
        found = single_report_f1(labels[[row + 40]], labels[[row + 50]])
        assert found[0] == pytest.approx(fourteen["micro avg"]["f1-score"], abs=1e-12)
