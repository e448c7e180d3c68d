"""Scorecards of real reports: pairs of different studies of Open-i, and its human codes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rrgclinical.scorecard.judge import TEMPLATE
from rrgtrain.config import load_config
from rrgtrain.run.scorecards import evaluate_files
from rrgtrain.schema import Recipe
from tests.real_data import REAL

ANNOTATION = REAL / "iu_xray" / "annotation.json"

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not ANNOTATION.is_file(), reason=f"no real data at {REAL}; set RRG_DATA"),
]


def test_reports_of_other_studies_and_the_template(tmp_path: Path) -> None:
    """The template has words and none of the findings; a near report beats a random one."""
    splits = json.loads(ANNOTATION.read_text(encoding="utf-8"))
    train = [row["report"] for row in splits["train"]]
    words = [set(text.lower().split()) for text in train]
    draw = random.Random(0)

    def near(report: str) -> str:
        mine = set(report.lower().split())
        return max(
            zip(words, train, strict=True), key=lambda w: len(w[0] & mine) / len(w[0] | mine)
        )[1]

    rows = splits["test"]
    # in another order than the references: they are joined by id
    shuffled = draw.sample(rows, len(rows))
    files = {
        "other": {row["id"]: draw.choice(train) for row in shuffled},
        "near": {row["id"]: near(row["report"]) for row in shuffled},
        "same": {row["id"]: row["report"] for row in shuffled},
    }
    for name, reports in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(reports), encoding="utf-8")
    words_ = ["eval.bootstrap=50", "eval.meteor=false", "data.source=iu_xray"]
    recipe = load_config(Recipe, None, [*words_, "eval.max_seq_length=60"])
    paths = [str(tmp_path / f"{name}.json") for name in files]
    card = evaluate_files(recipe, paths, ANNOTATION, tmp_path / "out")
    everything, normal, abnormal, rare = card.groups
    assert card.studies == len(rows) == normal.n + abnormal.n
    assert 0 < rare.n < abnormal.n < normal.n
    found = {name: {k: v.value for k, v in one.items()} for name, one in everything.systems.items()}
    assert list(found) == ["other", "near", "same", TEMPLATE]
    for metric in ("micro_f1", "macro_f1_13", "entity_f1", "match", "bleu_4", "cider"):
        assert found["other"][metric] < found["near"][metric] < found["same"][metric]
    assert found["same"]["micro_f1"] == found["same"]["accuracy"] == 1.0
    template = found[TEMPLATE]
    assert template["micro_f1_13"] == 0.0
    assert template["micro_f1"] == pytest.approx(0.61, abs=0.02)
    assert template["bleu_4"] == pytest.approx(0.17, abs=0.01)
    assert template["bleu_4"] > found["other"]["bleu_4"]
    (difference,) = [c for c in card.comparisons if (c.first, c.second) == ("other", "near")]
    assert difference.differences["micro_f1_13"].low > 0
    kept = (tmp_path / "out" / "predictions.jsonl").read_text(encoding="utf-8")
    assert len(kept.split("\n")) == 3 * len(rows) + 1
