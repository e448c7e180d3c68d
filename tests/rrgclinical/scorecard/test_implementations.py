"""One metric by every implementation that is installed, of one's own reports."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
import pytest

from rrgclinical import build_labeller
from rrgclinical.common.errors import UserError
from rrgclinical.metrics import label_report
from rrgclinical.scorecard import Pairs, SystemReading
from rrgclinical.scorecard.implementations import compare_implementations

REFERENCES = [
    "The heart is enlarged. Small effusion.",
    "No acute disease.",
    "Mild pulmonary edema.",
]
REPORTS = {"a": ["Large heart. Small effusions.", "no acute disease", ""], "b": REFERENCES}
LABELLER = build_labeller("rules")
TRUTH = LABELLER.label(REFERENCES)


def compared(references: Sequence[list[str]] | None = None) -> dict[str, list[str]]:
    """Return the cells of each line of the table, and the lines beneath it without any."""
    pairs = Pairs(["1", "2", "3"], [*(references or [[r] for r in REFERENCES])], REPORTS)
    readings = {name: SystemReading(LABELLER.label(texts)) for name, texts in REPORTS.items()}
    table, _, said = compare_implementations(pairs, TRUTH, readings, meteor=False).partition("\n\n")
    lines = [line.rsplit(maxsplit=2) for line in table.splitlines()]
    return {name.strip(): cells for name, *cells in lines} | {s: [] for s in said.splitlines()}


def test_every_installed_package_has_its_rows_beside_ours() -> None:
    rows = compared()
    named = {
        name.split(", ", 1)[1].split(":")[0]
        for name, cells in rows.items()
        if ": " in name and cells
    }
    versions = {
        p: metadata.version(p) for p in ("sacrebleu", "nltk", "pycocoevalcap", "rouge-score")
    }
    assert named == {"rrgclinical", *(f"{p} {v}" for p, v in versions.items())}
    for metric in ("BLEU-4", "ROUGE-L", "CIDEr"):
        ours = rows[f"{metric}, rrgclinical: space words"]
        theirs = rows[f"{metric}, pycocoevalcap {versions['pycocoevalcap']}: texts as they are"]
        assert ours == theirs
    rouge = f"ROUGE-L F1, rouge-score {versions['rouge-score']}: "
    assert rows["ROUGE-L F1, rrgclinical: no stemmer"] == rows[f"{rouge}no stemmer"]
    assert rows[f"{rouge}with stemmer"] > rows[f"{rouge}no stemmer"]
    sacre = f"BLEU-4, sacrebleu {versions['sacrebleu']}: corpus, 13a"
    assert rows[f"{sacre}, lower case"][0] > rows[sacre][0] and rows[sacre][1] == "1.0000"
    assert "scikit-learn is not installed: pip install scikit-learn" in rows


def test_studies_may_have_several_references() -> None:
    twice = compared([[r, r] for r in REFERENCES])
    assert {k: v for k, v in twice.items() if "CIDEr" not in k} == {
        k: v for k, v in compared().items() if "CIDEr" not in k
    }
    more = compared([[REFERENCES[0], REPORTS["a"][0]], *([r] for r in REFERENCES[1:])])
    name = f"BLEU-4, sacrebleu {metadata.version('sacrebleu')}: corpus, 13a"
    assert more[name][0] > twice[name][0]
    with pytest.raises(UserError, match="needs a reference report for every study"):
        compared([[], ["a"], ["b"]])


def test_packages_of_labels_and_graphs_are_asked_as_they_are_called(monkeypatch) -> None:
    def f1_score(truth: Any, pred: Any, *, average: str, zero_division: float) -> float:
        axis = 0 if average == "macro" else 1
        hits, total = (truth & pred).sum(axis), (truth.astype(int) + pred).sum(axis)
        rates = np.where(total > 0, 2 * hits / np.maximum(total, 1), zero_division)
        return float(np.nanmean(rates))

    class F1RadGraph:
        def __init__(self, *, reward_level: str, model_type: str) -> None:
            assert (reward_level, model_type) == ("all", "radgraph")

        def __call__(self, *, hyps: list[str], refs: list[str]) -> Any:
            same = np.mean([a == b for a, b in zip(hyps, refs, strict=True)])
            return (same, same / 2, same / 4), None

    fakes = {"sklearn": {}, "sklearn.metrics": {"f1_score": f1_score}}
    for name, values in {**fakes, "radgraph": {"F1RadGraph": F1RadGraph}}.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    version = metadata.version
    fake = {"scikit-learn": "1", "radgraph": "2"}
    monkeypatch.setattr(metadata, "version", lambda name: fake.get(name) or version(name))
    rows = compared()
    ours = label_report(LABELLER.label(REPORTS["a"]), TRUTH)
    for kind in ("macro", "sample"):
        assert rows[f"{kind} F1 of 14, scikit-learn 1: zero_division=0"] == [
            *(
                f"{ours[f'{kind}_f1']:.4f}",
                rows[f"{kind} F1 of 14, rrgclinical: an undefined ratio is 0"][1],
            )
        ]
        assert rows[f"{kind} F1 of 14, scikit-learn 1: zero_division=nan"][1] == "1.0000"
    assert rows["RadGraph-F1, radgraph 2: partial, as written"] == ["0.0000", "0.5000"]
    assert rows["RadGraph-F1, radgraph 2: simple, lower case"] == ["0.0000", "1.0000"]
    several = compared([[r, r] for r in REFERENCES])
    assert "radgraph gives no more: it takes one reference a report" in several
