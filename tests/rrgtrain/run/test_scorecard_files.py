"""`rrgtrain eval --predictions`: columns of ids named apart, and the template left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgclinical.scorecard.judge import TEMPLATE
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.run.scorecards import evaluate_files
from rrgtrain.schema import Recipe

REFERENCES = {
    "a": "The heart is enlarged. Small left pleural effusion.",
    "b": "No acute disease. The lungs are clear.",
    "c": "Mild pulmonary edema.",
}
FAST = ["eval.bootstrap=5", "eval.meteor=false"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("truth", "mine"):
        Path(f"{name}.json").write_text(json.dumps(REFERENCES))


def test_predictions_by_dicom_id_are_joined_with_r2gens_annotation() -> None:
    rows = [{"id": key, "study_id": 7, "report": text} for key, text in REFERENCES.items()]
    Path("annotation.json").write_text(json.dumps({"train": rows[:2], "val": [], "test": rows}))
    cells = [f'{key},"{text}"' for key, text in reversed(REFERENCES.items())]
    Path("p.csv").write_text("\n".join(["dicom_id,wrote", *cells]) + "\n")
    words = ["eval.prediction_column=wrote", "eval.training_reports=annotation.json"]
    for named in (
        ["eval.prediction_id_column=dicom_id"],
        ["eval.id_column=dicom_id", "eval.reference_id_column=id"],
    ):
        recipe = load_config(Recipe, None, [*FAST, *words, *named])
        card = evaluate_files(recipe, ["p.csv"], Path("annotation.json"), None)
        assert card.groups[0].systems["p"]["micro_f1"].value == 1.0
        assert "Joined by the column 'dicom_id' of p.csv and 'id' of annotation.json." in card.notes


def test_the_template_is_left_out_on_request() -> None:
    Path("null.yaml").write_text("eval: {template: }\n")
    Path("none.yaml").write_text("eval: {template: none}\n")
    off = [(None, [f"eval.template={word}"]) for word in ("none", "None", "null", "", "''")]
    for recipe, words in [*off, ("./null.yaml", []), ("./none.yaml", [])]:
        settings = load_config(Recipe, recipe, [*FAST, *words])
        card = evaluate_files(settings, [f"{TEMPLATE}=mine.json"], Path("truth.json"), None)
        assert card.systems == [TEMPLATE] and card.comparisons == [], (recipe, words)
        assert not any("for every study" in note for note in card.notes)
    own = load_config(Recipe, None, [*FAST, "eval.template=Clear."])
    card = evaluate_files(own, ["mine.json"], Path("truth.json"), None)
    assert card.systems == ["mine", TEMPLATE]
    assert f"{TEMPLATE}: 'Clear.' for every study." in card.notes
    with pytest.raises(UserError, match=r"called 'constant template'.* eval\.template=none"):
        evaluate_files(own, [f"{TEMPLATE}=mine.json"], Path("truth.json"), None)
