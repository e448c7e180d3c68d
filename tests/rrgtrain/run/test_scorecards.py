"""`rrgtrain eval --predictions`: files scored as the papers' tables are, beside a template."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from rrgclinical import OBSERVATIONS, build_labeller
from rrgclinical.metrics import label_report
from rrgclinical.scorecard import Scorecard
from rrgclinical.scorecard.judge import TEMPLATE
from rrgclinical.text import JavaError
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.service import TERMS
from rrgtrain.run.scorecards import evaluate_files, score_run, write_card
from rrgtrain.schema import DataSettings, Recipe
from rrgtrain.train.evaluate import score
from tests.rrgclinical.radgraph import archives
from tests.rrgtrain.common import studies

REFERENCES = {
    "a": "The heart is enlarged. Small left pleural effusion.",
    "b": "No acute disease. The lungs are clear.",
    "c": "Mild pulmonary edema.",
    "d": "Right pneumothorax. No effusion.",
}
MINE = {
    "d": "Right pneumothorax.",
    "a": "Large heart.<script>alert(1)</script>",
    "b": "No acute disease.",
    "c": "",
}
FAST = ["eval.bootstrap=20", "eval.meteor=false"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, reports in (("truth", REFERENCES), ("mine", MINE)):
        Path(f"{name}.json").write_text(json.dumps(reports))


def scored(*words: str) -> int:
    return main(["eval", "--references", "truth.json", *words, *FAST])


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["eval", *words, *FAST]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def card_of(
    predictions: str, *words: str, references: str = "truth.json", recipe: str | None = None
) -> Scorecard:
    settings = load_config(Recipe, recipe, [*FAST, *words])
    return evaluate_files(settings, [predictions], Path(references), None)


def test_a_file_is_scored_by_id_beside_the_template_and_nothing_is_overwritten(capsys):
    assert scored("--predictions", "mine.json", "--out", "card", "--compare-implementations") == 0
    text = capsys.readouterr().out
    read = json.loads(Path("card/metrics.json").read_text())
    assert read["systems"] == ["mine", TEMPLATE]
    found = read["groups"][0]["systems"]["mine"]
    labeller = build_labeller("rules")
    truth = labeller.label(list(REFERENCES.values()))
    wanted = label_report(labeller.label([MINE[key] for key in REFERENCES]), truth)
    assert {k: found[k]["value"] for k in wanted} == pytest.approx(wanted)
    # by position it would be another number
    assert label_report(labeller.label(list(MINE.values())), truth)["micro_f1"] != pytest.approx(
        wanted["micro_f1"]
    )
    template = read["groups"][0]["systems"][TEMPLATE]
    assert template["micro_f1_13"]["value"] == 0.0 and template["micro_f1"]["value"] > 0
    assert template["bleu_1"]["value"] > 0 and "\nBLEU-4, rrgclinical: r2gen words  " in text
    assert "micro-F1-14 (rules)" in text and "BLEU-4, r2gen (mimic_cxr)" in text
    assert "mine: 1 of 4 reports are empty ('c')." in text and "Joined by the column 'id'." in text
    assert "The heart size and mediastinal silhouette are" in text and "RadGraph-F1, simple" in text
    assert "GREEN: -, no model; set reward.options.green.endpoint" in text
    assert "METEOR, r2gen (mimic_cxr): -, METEOR was not asked for" in text
    # what is left in the directory
    rows = [json.loads(line) for line in Path("card/predictions.jsonl").read_text().splitlines()]
    assert [(r["id"], r["report"], r["reference"]) for r in rows] == [
        (key, MINE[key], text) for key, text in REFERENCES.items()
    ]
    assert rows[3]["scores"]["entity_f1"] > 0 and len(rows[0]["labels_true"]) == 14
    page = Path("card/report.html").read_text()
    assert page.count("<script>") == 1 and "&lt;script&gt;alert(1)" in page
    table = list(csv.DictReader(io.StringIO(Path("card/table.csv").read_text())))
    assert {row["system"] for row in table} == {"mine", TEMPLATE}
    assert r"\toprule" in Path("card/table.tex").read_text()
    # and nothing of it is overwritten
    before = Path("card/metrics.json").stat().st_mtime_ns
    line = refused(
        capsys, *("--predictions", "mine.json", "--references", "truth.json", "--out", "card")
    )
    assert "card already holds an evaluation (metrics.json, table.csv" in line
    assert Path("card/metrics.json").stat().st_mtime_ns == before
    # the kept reports are scored again to the same numbers
    kept = ["--predictions", "card/predictions.jsonl", "--references", "card/predictions.jsonl"]
    assert main(["eval", *kept, "--out", "again", *FAST]) == 0
    for name in ("groups", "findings"):
        first, again = (json.loads(Path(d, "metrics.json").read_text()) for d in ("card", "again"))
        assert first[name] == again[name]


def test_a_sentence_and_six_rows_come_before_any_note_where_findings_are_there() -> None:
    assert scored("--predictions", "mine.json", "--out", "card") == 0
    page = Path("card/report.html").read_text()
    lead, first, end = (page.index(mark) for mark in ('class="lead"', "<table>", "</table>"))
    later = [page.index(text) for text in ("Large heart.", "All metrics, 4 studies", '"note"')]
    assert [lead, first, end, *later] == sorted([lead, first, end, *later])
    assert re.search(
        r"micro-F1 over 13 findings, 4 studies: 0\.\d{3} .* with mine", page[lead:first]
    )
    rows = re.findall(r'<th scope="row">([^<]*)', page[first:end])
    assert [re.split(r" \(|,", row)[0] for row in rows] == [
        *("micro-F1-13", "micro-F1-14", "macro-F1-14", "entity F1", "BLEU-4", "ROUGE-L")
    ]
    for name, reports in (("truth", REFERENCES), ("mine", MINE)):
        Path(f"{name}.json").write_text(json.dumps({"b": reports["b"]}))
    assert scored("--predictions", "mine.json", "--out", "normal") == 0
    page = Path("normal/report.html").read_text()
    assert 'class="lead"' not in page and "micro-F1-14" in page[: page.index("</table>")]


def test_two_systems_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.csv").write_text("id,report\n" + "".join(f"{k},Large heart.\n" for k in REFERENCES))
    assert scored("--predictions", "A=mine.json", "--predictions", "B=b.csv", "--out", "two") == 0
    text = capsys.readouterr().out
    assert "B - A" in text and f"{TEMPLATE} - A" in text and " tests of differences; " in text
    assert len(Path("two/predictions.jsonl").read_text().splitlines()) == 8
    twice = ["--predictions", "b.csv", "--predictions", "b.csv"]
    line = refused(capsys, *twice, "--references", "truth.json")
    assert "two systems are called 'b'; name one NAME=b.csv" in line


def test_files_of_the_same_systems_are_scored_together(capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs each have a start and an end; NAME=FILE tells them apart."""
    two = ["--predictions=start=mine.json", "--predictions=EditGRPO=truth.json"]
    assert scored(*two, "--out", "one") == 0
    again = [f"--predictions={name}=one/predictions.jsonl" for name in ("s1", "s2", "EditGRPO")]
    assert scored(*again, "--out", "both") == 0
    table = list(csv.DictReader(io.StringIO(Path("both/table.csv").read_text())))
    named = ["s1: start", "s1: EditGRPO", "s2: start", "s2: EditGRPO", "EditGRPO", TEMPLATE]
    assert list(dict.fromkeys(row["system"] for row in table)) == named


def test_missing_predictions_stop_or_count_as_empty(capsys: pytest.CaptureFixture[str]) -> None:
    short = {key: REFERENCES[key] for key in "abd"}
    Path("short.json").write_text(json.dumps(short))
    files = ["--predictions", "short.json", "--references", "truth.json"]
    assert "1 of 4 references in truth.json have no prediction" in refused(capsys, *files)
    card = card_of("short.json", "eval.missing=empty")
    found = card.groups[0].systems["short"]
    # the missing one is scored: all four count
    assert card.studies == 4 and found["micro_recall_13"].value == pytest.approx(3 / 4)
    assert "1 of 4 references have no prediction and count as empty reports ('c')" in str(
        card.notes
    )


def test_gold_labels_are_the_truth() -> None:
    header = "id,reference," + ",".join(OBSERVATIONS)
    cells = ["0"] * 13 + ["1.0"]
    rows = [f'{key},"{text}",{",".join(cells)}' for key, text in REFERENCES.items()]
    Path("gold.csv").write_text("\n".join([header, *rows]) + "\n")
    card = card_of("mine.json", references="gold.csv")
    assert [f.positives for f in card.findings] == [0] * 13 + [4]
    assert "The truth is the labels that come with the references." in card.notes
    assert card.groups[0].systems["mine"]["bleu_1"].value > 0
    by_report = card_of("mine.json", "eval.truth=report", references="gold.csv")
    assert by_report.findings[1].positives == 1
    # labels alone: words have nothing to be compared with
    bare = ["id," + ",".join(OBSERVATIONS), *(f"{key},{','.join(cells)}" for key in REFERENCES)]
    Path("labels.csv").write_text("\n".join(bare) + "\n")
    card = card_of("mine.json", references="labels.csv")
    for metric in ("bleu_4", "entity_f1"):
        assert card.absent[metric] == "not every study has a reference report"
    # its own reason stays
    assert card.absent["radcliq"].startswith("no weights; set reward.options.bertscore")
    assert "bleu_4" not in card.groups[0].systems["mine"]


def test_the_best_of_several_references_counts() -> None:
    # neither the first nor the last of them
    several = {
        "a": [REFERENCES["a"], "Right pneumothorax."],
        "b": ["Mild pulmonary edema.", REFERENCES["b"]],
    }
    rows = [{"id": key, "reference": text} for key, text in several.items()]
    Path("several.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("p.json").write_text(json.dumps({"a": REFERENCES["a"], "b": REFERENCES["b"]}))
    card = card_of("p.json", references="several.jsonl")
    assert card.groups[0].systems["p"]["entity_f1"].value == 1.0
    assert any("Of several references of a study, half decide" in note for note in card.notes)
    # both have half of the votes
    positive = {f.name for f in card.findings if f.positives}
    assert positive == {"Cardiomegaly", "Pleural Effusion", "Pneumothorax", "Edema"}
    (line,) = [note for note in card.notes if "half decide" in note]
    assert "BLEU the closest length, CIDEr the mean" in line
    assert "cider" not in card.groups[0].ceilings


def test_models_are_measured_where_their_files_are_named(tmp_path: Path) -> None:
    archive = archives.write_archive(tmp_path / "radgraph")
    card = card_of("mine.json", f"reward.options.radgraph.weights={archive}")
    assert {"radgraph_simple", "radgraph_complete"} <= set(card.groups[0].systems["mine"])
    assert "radgraph_simple" not in card.absent and "ratescore" in card.absent
    assert card.groups[0].ceilings["cider"] > 1.0
    assert any(note.endswith("comparable with MIMIC-CXR rows only.") for note in card.notes)
    card = card_of("mine.json", "data.source=open_i")
    assert any("comparable with IU X-Ray rows only" in note for note in card.notes)
    with pytest.raises(UserError, match="model files are missing: reward.options.radgraph.weights"):
        card_of("mine.json", "reward.options.radgraph.weights=/nowhere.tar.gz")


@pytest.mark.parametrize(
    ("metric", "first", "error", "words"),
    [
        ("match", np.ones(4), RuntimeError, [*FAST, "reward.terms={label_f1: 1.0}"]),
        ("meteor", np.ones((4, 23)), JavaError, ["eval.bootstrap=20"]),
    ],
    ids=["match", "meteor"],
)
def test_a_metric_that_fails_for_one_system_is_absent_of_all(
    metric: str,
    first: np.ndarray,
    error: type[Exception],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    def fails_later(batch: object) -> np.ndarray:
        calls.append(batch)
        if len(calls) > 1:
            raise error("out of memory")
        return first

    if metric == "match":
        monkeypatch.setitem(TERMS, "match", fails_later)
    monkeypatch.setattr("rrgclinical.text.scores.meteor_statistics", fails_later)
    card = evaluate_files(load_config(Recipe, None, words), ["mine.json"], Path("truth.json"), None)
    assert "out of memory" in card.absent[metric] and len(calls) == 2
    systems = card.groups[0].systems
    assert not any(metric in found for found in systems.values()) and "bleu_4" in systems["mine"]


def test_half_characters_leave_no_half_evaluation(capsys, monkeypatch):
    Path("half.json").write_text(json.dumps({**MINE, "b": "Clear.\ud83d"}))
    assert scored("--predictions", "half.json", "--out", "half") == 0
    assert "half characters (lone surrogates) in 1 rows" in capsys.readouterr().out
    assert "Clear.\ufffd" in Path("half/predictions.jsonl").read_text(encoding="utf-8")
    asked = (load_config(Recipe, None, FAST), ["mine.json"], Path("truth.json"), Path("out"))
    with monkeypatch.context() as broken:
        broken.setitem(write_card.__globals__, "as_latex", lambda *_: "\ud83d")
        with pytest.raises(UnicodeEncodeError):
            evaluate_files(*asked)
    assert [path.name for path in Path("out").iterdir()] == [".unfinished"]
    assert evaluate_files(*asked) and not Path("out/.unfinished").exists()


def test_rare_words_of_references_are_unknown_as_in_published_rows(capsys):
    common = "Right pneumothorax. No effusion. The lungs are clear. No acute disease."
    entries = [{"id": f"t{i}", "report": common, "split": "train"} for i in range(3)]
    test = [{"id": "x", "report": "Mild mild mild mild edema.", "split": "test"}]
    Path("annotation.json").write_text(json.dumps({"train": entries, "val": [], "test": test * 9}))
    settings = ["data.source=iu_xray", "eval.training_reports=annotation.json"]
    bleu = []
    for number, words in enumerate((settings[:1], settings)):
        assert scored("--predictions", "P=truth.json", "--out", f"u{number}", *words) == 0
        printed = capsys.readouterr().out
        assert ("rare words <unk>" in printed) == (len(words) == 2)
        rows = csv.DictReader(io.StringIO(Path(f"u{number}/table.csv").read_text()))
        bleu += [
            float(r["value"])
            for r in rows
            if r["system"] == "P" and r["metric"] == "bleu_1" and r["group"] == "all"
        ]
    # rare are 9 of the 29 words: heart is enlarged small left pleural, mild pulmonary edema
    assert bleu == pytest.approx([1.0, 20 / 29])
    # rows of other splits are no training reports
    Path("rows.json").write_text(json.dumps([*entries, *test * 9]))
    listed = [settings[0], "eval.training_reports=rows.json"]
    assert scored("--predictions", "P=truth.json", "--out", "listed", *listed) == 0
    assert Path("listed/table.csv").read_text() == Path("u1/table.csv").read_text()
    ptb = ["eval.tokenization=ptb", *settings]
    line = refused(capsys, "--predictions", "mine.json", "--references", "truth.json", *ptb)
    assert "use eval.tokenization=r2gen with it, not ptb" in line


def test_words_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--predictions", "mine.json")
    assert "the following arguments are required: --references; see `rrgtrain eval" in line
    line = refused(capsys, "--references", "truth.json")
    assert "required: --predictions" in line
    both = ["--predictions", "mine.json", "--references", "truth.json"]
    assert "eval.limit=2 is for checkpoints" in refused(capsys, *both, "eval.limit=2")
    assert "leave out --from" in refused(capsys, *both, "--from", "x")
    assert "required: --from, --out" in refused(capsys)
    assert "none.csv does not exist" in refused(capsys, "--predictions", "none.csv", *both[2:])
    Path("file").write_text("")
    assert "--out file is a file" in refused(capsys, *both, "--out", "file")


def test_what_a_checkpoint_wrote_is_kept_and_scored() -> None:
    words = [*FAST, "reward.terms={label_f1: 1.0}", "reward.blocks=think_report"]
    recipe = load_config(Recipe, None, words)
    rewards, given = RewardService(recipe.reward), studies(4)
    inside = [study.report or "" for study in given[:3]]
    written = [f"<think>So.</think><report>{text}</report>" for text in inside]
    evaluation = score([*written, "no block"], given, rewards)
    card = score_run(
        recipe.eval, rewards, DataSettings(source="table"), {"GRPO": evaluation}, Path()
    )
    assert card.systems == ["GRPO", TEMPLATE]
    found = card.groups[0].systems["GRPO"]
    wanted = label_report(evaluation.predicted, evaluation.truth)
    assert {k: found[k].value for k in wanted} == pytest.approx(wanted)
    rows = [json.loads(line) for line in Path("predictions.jsonl").read_text().splitlines()]
    assert [row["report"] for row in rows] == [*inside, ""]
    assert [row["completion"] for row in rows] == evaluation.reports
    assert [row["scores"]["total"] for row in rows] == evaluation.rewards["total"].tolist()
    assert rows[0]["scores"]["entity_f1"] == 1.0
    assert Path("metrics.json").exists() and Path("table.tex").exists()


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
        card = card_of("p.csv", *words, *named, references="annotation.json")
        assert card.groups[0].systems["p"]["micro_f1"].value == 1.0
        assert "Joined by the column 'dicom_id' of p.csv and 'id' of annotation.json." in card.notes


def test_the_template_is_left_out_on_request() -> None:
    Path("null.yaml").write_text("eval: {template: }\n")
    Path("none.yaml").write_text("eval: {template: none}\n")
    off = [(None, [f"eval.template={word}"]) for word in ("none", "None", "null", "", "''")]
    for recipe, words in [*off, ("./null.yaml", []), ("./none.yaml", [])]:
        card = card_of(f"{TEMPLATE}=mine.json", *words, recipe=recipe)
        assert card.systems == [TEMPLATE] and card.comparisons == [], (recipe, words)
        assert not any("for every study" in note for note in card.notes)
    card = card_of("mine.json", "eval.template=Clear.")
    assert card.systems == ["mine", TEMPLATE]
    assert f"{TEMPLATE}: 'Clear.' for every study." in card.notes
    with pytest.raises(UserError, match=r"called 'constant template'.* eval\.template=none"):
        card_of(f"{TEMPLATE}=mine.json", "eval.template=Clear.")
