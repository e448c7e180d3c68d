"""One page of several runs: what stands side by side, what is said of their differences."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rrgclinical import OBSERVATIONS
from rrgreport import Metric, RunSummary, Sample, System, write_samples
from rrgreport.cases import SHOWN, case_list, read_by_rules
from rrgreport.compare import write_comparison
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.schema import RewardSettings
from tests.rrgreport.test_html import EVIL, Page

EFFUSION, EDEMA = (OBSERVATIONS.index(name) for name in ("Pleural Effusion", "Edema"))


def labels(*present: int) -> list[int]:
    return [int(i in present) for i in range(len(OBSERVATIONS))]


def plant(run: Path, report: str, config: str, *, f1: float = 0.5, study: str = "s1") -> Path:
    """A finished run of two systems and two studies, one of them `study`."""
    run.mkdir(parents=True)
    systems = {n: System({"micro_f1": Metric(f1, 0.1, 0.9)}, {"Edema": f1}) for n in ("SFT", "RL")}
    RunSummary("A run", systems, ["Phantom data.", f"Of {run.name}."]).save(run / "summary.json")
    (run / "config.yaml").write_text(config, encoding="utf-8")
    reference = "There is a left pleural effusion."
    texts = {"SFT": "No effusion.", "RL": report}
    write_samples(
        run / "samples.jsonl",
        [
            Sample(study, [], reference, texts, labels=labels(EFFUSION)),
            Sample(f"only {run.name}", [], "Clear.", texts, labels=labels()),
        ],
    )
    rows: list[dict[str, Any]] = [
        {"phase": "sft", "step": i, "time": 0.0, "loss": 3.0 - i} for i in range(3)
    ]
    for i in range(3):
        row = {"phase": "rl", "step": i, "time": 0.0, "loss": 9.0, "zero_variance": 0.5}
        rows.append({**row, "reward/total": f1 + i})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    first = plant(tmp_path / "a", "Left effusion.", "seed: 0\nrl:\n  lr: 0.1\ndata: {root: x}\n")
    report = "Left effusion and edema."
    second = plant(tmp_path / "b", report, "seed: 0\nrl:\n  lr: 0.2\ndata: {root: y}\n", f1=0.75)
    return [first, second]


def test_systems_curves_settings_and_studies_side_by_side(runs, tmp_path) -> None:
    out = tmp_path / "new" / "compare.html"
    summary = write_comparison(runs, out)
    assert list(summary.systems) == ["a: SFT", "a: RL", "b: SFT", "b: RL"]
    page = Page(out.read_text("utf-8"))
    text = " ".join(page.text.split())
    assert "at the end: a 0.500 (0.100 to 0.900); b 0.750 (0.100 to 0.900)." in text
    assert "The runs differ in their data (data.root): compare with care." in text
    assert "The recipes differ in 2 settings" in text
    assert "rl.lr 0.1 0.2" in text and "data.root x y" in text and "seed 0" not in text
    assert text.count("Phantom data.") == 1 and "a: Of a." in text and "b: Of b." in text
    charts = [v for tag, name, v in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(charts) == 3 and all(", b " in label for label in charts)
    assert "1 of 3 studies were kept by every run." in text
    shared = text.partition("Study s1")[2].partition("Study only a")[0]
    names = ["a: SFT", "a: RL", "b: SFT", "b: RL"]
    assert [shared.index(name) for name in names] == sorted(shared.index(n) for n in names)
    assert shared.count("Pleural Effusion, missed") == 2 and "Edema, false alarm" in shared
    (errors, *_) = [v for _, name, v in page.attributes if name == "data-errors"]
    assert json.loads(errors) == [1, 0, 1, 1]


def test_studies_of_one_id_with_other_references_are_two_cases(tmp_path) -> None:
    runs = [plant(tmp_path / name / "run", "Edema.", "seed: 0\n") for name in ("a", "b")]
    path = runs[1] / "samples.jsonl"
    path.write_text(path.read_text().replace("left pleural", "right pleural"))
    write_comparison(runs, tmp_path / "c.html")
    page = Page((tmp_path / "c.html").read_text("utf-8"))
    # a/run and b/run both have the study "only run"
    assert "1 of 3 studies were kept by every run." in page.text
    assert "a/run against b/run" in page.text


def test_errors_are_counted_against_the_truth_of_the_own_run(runs, tmp_path) -> None:
    predict(runs[0], "s1")
    predict(runs[1], "s1", labels_true=labels(EDEMA))
    shown = Sample("s1", [Image.new("L", (8, 8), 9)], "x", {}, "Cough.", ["PA"])
    write_samples(runs[1] / "samples.jsonl", [shown])
    (runs[0] / "samples.jsonl").unlink()
    write_comparison(runs, tmp_path / "c.html")
    page = Page((tmp_path / "c.html").read_text("utf-8"))
    text = " ".join(page.text.split())
    assert "1 of 1 studies were kept by every run. " in text
    assert "other true labels for 1 studies" in text
    (errors,) = [v for _, name, v in page.attributes if name == "data-errors"]
    # SFT has an edema alone, RL an effusion alone
    assert json.loads(errors) == [2, 0, 0, 2]
    assert "Edema (not in every run)" in text and "Pleural Effusion (not in every run)" in text
    assert page.tags["img"] == 1 and "Cough." in text and "PA" in text


SCORED = [
    f"reward.{field.name}"
    for field in dataclasses.fields(RewardSettings)
    if field.name not in ("device", "cache", "cache_texts", "max_cost")
]
LABELS_SHOWN = ("micro-F1-14", "reward", "reward: match", "zero-variance groups")
OF_LABELS = ("eval.truth", "eval.limit", "reward.labeller", "reward.against", "reward.blocks")


def test_another_judge_is_noted_and_nothing_is_the_best_by_two_yardsticks(runs, tmp_path) -> None:
    """Of every setting by which a report is judged, and of none that only says where it is read."""
    for run, value in zip(runs, (0.1, 0.9), strict=True):
        summary = json.loads((run / "summary.json").read_text())
        for system in summary["systems"].values():
            for key in ("reward", "reward/match", "zero_variance"):
                system["metrics"][key] = {"value": value, "low": None, "high": None}
        (run / "summary.json").write_text(json.dumps(summary))
    wrong = []
    judged = [*SCORED, "reward.terms.match", "reward.options.radgraph.weights", *OF_LABELS]
    for key in (*judged, "eval.cleaning", "reward.cache", "reward.device", "rl.lr"):
        for run, value in zip(runs, "xy", strict=True):
            settings: Any = value
            for name in reversed(key.split(".")):
                settings = {name: settings}
            (run / "config.yaml").write_text(json.dumps(settings))
        notes = write_comparison(runs, tmp_path / "c.html").notes
        told = f"The runs were judged differently ({key}): compare with care." in notes
        page = (tmp_path / "c.html").read_text()
        shown = [page.partition(f'<th scope="row">{label}</th>')[2] for label in LABELS_SHOWN]
        bold = ['class="best"' in cells.partition("</tr>")[0] for cells in shown]
        clinical = key not in (*OF_LABELS, "reward.options", "reward.options.radgraph.weights")
        wanted = [clinical, key not in judged, key not in judged, False]
        if told is not (key in judged or key == "eval.cleaning") or bold != wanted:
            wrong.append((key, told, bold))
    assert not wrong, wrong


def test_a_page_has_so_many_cases_and_says_so() -> None:
    """Those with the most and the fewest errors are among them."""
    samples = [
        Sample(f"s{i}", [], "r", {"X": "Edema." if i % 7 else "Clear."}, labels=labels())
        for i in range(3 * SHOWN)
    ]
    made = case_list(read_by_rules(samples), ["X"], labeller="it")
    assert len(made.shown) == SHOWN and f"{SHOWN} of {3 * SHOWN} studies" in made.notes[0]
    counts = [case["errors"][0] for case in made.shown]
    assert counts[0] == 1 and counts[-1] == 0 and counts == sorted(counts, reverse=True)
    assert made.findings == [("Edema", sum(counts))]


def predict(run: Path, *ids: str, **changed: Any) -> list[dict[str, Any]]:
    """Write the reports of all studies as an evaluation does: an effusion each, that is seen."""
    rows = [
        {
            "system": system,
            "id": key,
            "report": f"{system} on {key}.",
            "reference": "A left effusion.",
            "labels_predicted": labels(EFFUSION) if system == "RL" else labels(EDEMA),
            "labels_true": labels(EFFUSION),
            "scores": {"match": 1.0},
            **changed,
        }
        for system in ("SFT", "RL", "constant template")
        for key in ids
    ]
    path = run / "predictions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


def test_all_studies_are_cases_where_the_run_kept_all_reports(runs, tmp_path) -> None:
    for run in runs:
        predict(run, "s1", "s2", "s3")
    write_comparison(runs, tmp_path / "c.html")
    page = Page((tmp_path / "c.html").read_text("utf-8"))
    text = " ".join(page.text.split())
    assert "3 of 3 studies were kept by every run." in text and "the run's labeller" in text
    assert "SFT on s2." in text and "constant template" not in text
    errors = [v for _, name, v in page.attributes if name == "data-errors"]
    assert [json.loads(e) for e in errors] == [[2, 0, 2, 0]] * 3
    assert main(["report", str(runs[0])]) == 0
    page = Page((runs[0] / "report.html").read_text("utf-8"))
    assert page.tags["article"] == 3 and "RL on s3." in page.text


@pytest.mark.parametrize("changed", [{"labels_true": [1]}, {"labels_predicted": "x"}, {"id": []}])
def test_a_line_that_is_no_report_is_named(runs, changed) -> None:
    predict(runs[0], "s1", **changed)
    with pytest.raises(UserError, match=r"predictions\.jsonl:1: no report of a study"):
        write_comparison(runs, runs[0] / "c.html")


def test_text_of_every_origin_is_escaped(tmp_path) -> None:
    name = EVIL.replace("/", "")
    config = json.dumps({EVIL: EVIL, "x": 1})
    runs = [
        plant(tmp_path / name, EVIL, config, study=EVIL),
        plant(tmp_path / "b", EVIL, "x: 2\n", study=EVIL),
    ]
    write_comparison(runs, tmp_path / "c.html")
    page = Page((tmp_path / "c.html").read_text("utf-8"))
    assert page.tags["script"] == 1 and page.tags["img"] == 0 and "alert" not in page.scripts
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert "{{ 7*7 }}" in page.text


def test_what_is_no_finished_run_is_one_line(runs, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)

    def refused(*words: str) -> str:
        capsys.readouterr()
        assert main(["report", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "no run in typo" in refused("a", "typo")
    assert "is given twice" in refused("a", "./a")
    (runs[1] / "summary.json").rename(tmp_path / "kept")
    assert "let the run finish first" in refused("a", "b")
    scored = tmp_path / "scored"
    scored.mkdir()
    for name in ("metrics.json", "predictions.jsonl", "report.html"):
        (scored / name).write_text("{}")
    assert "scored holds scored files; their page is scored/report.html" in refused("scored")
    for name in ("config.yaml", "metrics.jsonl"):
        (scored / name).write_text("")
        lost = refused("scored")
        assert "summary.json is gone, though the run in scored has ended; put it back" in lost
        (scored / name).unlink()
    (tmp_path / "kept").rename(runs[1] / "summary.json")
    (tmp_path / "mine.html").write_text("<html>mine</html>")
    for words in (("a", "b"), ("a",)):
        assert "is no report" in refused(*words, "--out", "mine.html")
    assert (tmp_path / "mine.html").read_text() == "<html>mine</html>"
    (runs[0] / "config.yaml").write_text("a: [")
    assert "config.yaml cannot be read" in refused("a", "b")
    (runs[0] / "config.yaml").write_text("a: 1")
    assert main(["report", "a", "b"]) == 0 and (tmp_path / "compare.html").is_file()
    assert main(["report", "b", "a"]) == 0, "its own page is written again"
    assert (
        main(["report", "a", "--out", "one.html"]) == 0 and not (runs[0] / "report.html").exists()
    )
    assert "report: one.html" in capsys.readouterr().out
