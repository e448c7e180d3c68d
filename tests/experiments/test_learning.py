"""The learning bench, differences over seeds, the coverage of intervals, and two pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments import draw, learning
from experiments.coverage import (
    HOSPITAL,
    IU_XRAY,
    SYSTEMS,
    TESTED,
    Population,
    coverage,
    false_alarms,
    population,
)
from experiments.measures import Ratios, label_measures, mean_of
from experiments.seeds import FAILS, HOLDS, UNDECIDED, Estimate, difference, judge_above, over_seeds
from rrgclinical.metrics import label_report
from rrgtrain.run import stages
from tests.rrgtrain.runs import TINY_RUN

SEEDS = [1, 2]


def test_only_sft_on_chosen_and_rl_see_the_studies_that_the_recipe_chooses(
    tmp_path, monkeypatch
) -> None:
    seen: dict[tuple[str, str], int] = {}
    train_sft, train_rl = stages.train_sft, stages.train_rl

    def tuned(run):
        seen["sft", job] = len(run.studies)
        return train_sft(run)

    def trained(run):
        seen[run.settings.algorithm, job] = len(run.studies)
        return train_rl(run)

    monkeypatch.setattr(stages, "train_sft", tuned)
    monkeypatch.setattr(stages, "train_rl", trained)
    # in this process, whose settings other tests share
    own = ["data.balanced=3", "sft.wall_seconds=0.1", "deterministic=false"]
    settings = [*TINY_RUN, *own]
    for job in learning.NEEDS:
        learning.run_job(job, 1, tmp_path, "learning", settings)
    assert {job: studies for (_, job), studies in seen.items()} == {
        "sft": 8,
        "sft_continued": 8,
        "sft_on_chosen": 3,
        "editgrpo": 3,
        "dr_grpo": 3,
    }
    assert ("dr_grpo", "dr_grpo") in seen and ("editgrpo", "editgrpo") in seen
    rollouts = {
        name: json.loads((tmp_path / "seed1" / f"{name}.json").read_text())["rollouts"]
        for name in ("editgrpo", "dr_grpo")
    }
    assert learning.verdict(tmp_path, [1])["studies"] > 0
    kept = json.loads((tmp_path / "seed1" / "sft.json").read_text())["identity"]
    assert kept == learning.identity("learning", settings)
    assert rollouts["editgrpo"] == rollouts["dr_grpo"] > 0


def told(share: float) -> list[list[int]]:
    """Class ids of 100 reports, of which a share tells an effusion and the others nothing."""
    good = round(100 * share)
    return [[int(column == 9) for column in range(14)]] * good + [[0] * 14] * (100 - good)


def written(out: Path, right: dict[str, float]) -> Path:
    """Results in which a share `right` of 100 studies with effusion is told as it is."""
    for seed in SEEDS:
        home = out / f"seed{seed}"
        (home / "data").mkdir(parents=True)
        train = [{"report": "Small left effusion. Clear lungs."}, {"report": "Clear lungs."}]
        (home / "data" / "annotation.json").write_text(json.dumps({"train": train}))
        for name, share in right.items():
            result = {
                "test": {"reward": share},
                "predicted": told(share),
                "truth": told(1.0),
                "reports": ["Clear lungs. Small left effusion.", "Clear lung. Clear lungs."],
                **{"seconds": 1.0, "rollouts": 8, "best_step": 3},
            }
            (home / f"{name}.json").write_text(json.dumps(result))
    return out


RIGHT = {"sft": 0.3, "sft_continued": 0.35, "dr_grpo": 0.5, "editgrpo": 0.8, "sft_on_chosen": 0.9}


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, set()),
        ({"dr_grpo": 0.8}, {"dr_grpo"}),
        ({"sft_continued": 0.85}, {"sft_continued"}),
        ({"sft": 0.75}, {"sft"}),  # better, and by less than five points
    ],
)
def test_the_verdict(tmp_path, change, failing, capsys) -> None:
    found = learning.verdict(written(tmp_path, {**RIGHT, **change}), SEEDS)
    rows = found["editgrpo_minus"]
    judged = {name: row["verdict"] for name, row in rows.items()}
    assert {name for name, said in judged.items() if said == "fails"} == failing
    assert {name for name, said in judged.items() if said == "not judged"} == {"sft_on_chosen"}
    assert rows["sft_on_chosen"]["difference"] < 0
    assert found["systems"]["editgrpo"]["unheard"] == [0.25, 0.25]
    learning.show(found)
    lines = capsys.readouterr().out.splitlines()
    assert sum("fails" in line for line in lines) == len(failing)
    assert sum("not judged" in line for line in lines) == 1


def test_one_seed_that_loses_leaves_it_undecided(tmp_path) -> None:
    path = written(tmp_path, RIGHT) / "seed2" / "editgrpo.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "predicted": told(0.29)}))
    row = learning.verdict(tmp_path, SEEDS)["editgrpo_minus"]["sft"]
    assert row["difference"] > 0.05 and row["verdict"] == "undecided"


def test_the_page_tells_the_recorded_results(monkeypatch, capsys) -> None:
    root = Path(__file__).parents[2]
    recorded = str(root / "experiments" / "results" / "learning.json")
    monkeypatch.setattr("sys.argv", ["learning", "--show", recorded])
    assert learning.main() == 0
    shown = [x for x in capsys.readouterr().out.splitlines() if x.startswith("EditGRPO - ")]
    page = (root / "docs" / "evidence.md").read_text("utf-8")
    rows = page.split("| EditGRPO (")[1].split("\n\n")[0].splitlines()[2:]
    assert len(shown) == len(rows) == 4

    def numbers(line: str) -> list[str]:
        return re.findall(r"[-+]\d\.\d{3}", line)

    assert [numbers(row) for row in rows] == [numbers(line) for line in shown]
    assert all("not judged" in line for line in shown)


THREE = (0, 1, 2)


def planted(mean: float, seed: int, units: int = 400) -> Ratios:
    """A measure whose studies scatter around `mean`, the same scatter whatever the mean."""
    return mean_of(mean + 0.1 * np.random.default_rng(seed).standard_normal(units))


def labels(seed: int, reports: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, (reports, 14)).astype(np.int8)


def test_measures_equal_the_metrics_they_are_named_after() -> None:
    predicted, truth = labels(0), labels(1)
    whole = label_report(predicted, truth)
    measures = label_measures(predicted, truth)
    for name in ("micro_f1", "macro_f1"):
        assert measures[name].value()[0] == pytest.approx(whole[name]), name
    weights = np.zeros((1, 60))
    weights[0, [4, 7]] = (1, 2)
    part = [4, 7, 7]
    again = label_report(predicted[part], truth[part])
    assert measures["macro_f1"].value(weights)[0] == pytest.approx(again["macro_f1"])


def test_a_difference_by_hand() -> None:
    first, second = mean_of([1.0, 3.0]), mean_of([1.0, 1.0])
    assert difference([first], [second]).value == 1.0
    assert difference([first, second], [second, second]).seeds == (1.0, 0.0)
    assert Ratios(np.zeros((2, 1)), np.zeros((2, 1))).value().tolist() == [0.0], "0/0 is 0"
    with pytest.raises(ValueError, match="2 units against 3; wanted equal"):
        difference([first], [mean_of([1.0, 2.0, 3.0])])
    with pytest.raises(ValueError, match="wanted the same"):
        Ratios(np.zeros((2, 1)), np.zeros((3, 1)))


def test_the_interval_is_that_of_the_mean_of_studies() -> None:
    values = np.random.default_rng(5).standard_normal(900)
    between = difference([mean_of(values)], [mean_of(np.zeros(900))])
    half = 1.96 * values.std() / 30
    assert between.value == pytest.approx(values.mean())
    assert between.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert between.high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_studies_are_paired_and_seeds_are_drawn() -> None:
    # the scatter of studies is the same on both sides: nothing but the difference is left
    tight = difference([planted(0.55, s) for s in THREE], [planted(0.5, s) for s in THREE])
    assert tight.low == pytest.approx(0.05) and tight.high == pytest.approx(0.05)
    # seeds that disagree widen it, however many studies each has
    wide = difference(
        [planted(m, s, 5000) for s, m in enumerate((0.5, 0.6, 0.7))],
        [planted(0.5, s, 5000) for s in THREE],
    )
    assert wide.value == pytest.approx(0.1)
    assert wide.low == pytest.approx(0.0, abs=1e-9) and wide.high == pytest.approx(0.2)


def test_students_interval_goes_beyond_the_seeds() -> None:
    # by hand: mean 0.2, standard error 0.1 / sqrt(3), t 4.303
    assert over_seeds([0.1, 0.2, 0.3]) == pytest.approx((-0.0484, 0.4484), abs=1e-4)
    assert over_seeds([0.1]) == (-np.inf, np.inf)
    values = np.random.default_rng(5).standard_normal(40)
    low, high = over_seeds(list(values))
    assert high - low > 2 * 2.02 * values.std(ddof=1) / 40**0.5


@pytest.mark.parametrize(
    ("value", "low", "outcome"),
    [(0.03, 0.01, HOLDS), (0.03, -0.01, UNDECIDED), (0.0, -0.02, FAILS), (-0.01, -0.03, FAILS)],
)
def test_a_judgement(value, low, outcome) -> None:
    assert judge_above(Estimate(value, low, 2 * value - low, (value,))) == outcome


IMAGES = Path(__file__).parents[2] / "docs" / "img"
SVG = "{http://www.w3.org/2000/svg}"


def parts(path: Path) -> tuple[str, set[str], set[str]]:
    """All text of a picture, its tags, and the colours in it; it must not be cut or grow."""
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 60_000 and "http" not in text.replace("http://www.w3.org", "")
    root = ElementTree.fromstring(text)
    wide, high = map(float, root.attrib["viewBox"].split()[2:])
    for node in root.iter(f"{SVG}text"):
        assert 0 <= float(node.attrib["x"]) < wide and 0 < float(node.attrib["y"]) < high
    nodes = list(root.iter())
    fills = {node.attrib["fill"] for node in nodes if "fill" in node.attrib}
    words = " ".join(" ".join("".join(node.itertext()).split()) for node in nodes)
    return words, {node.tag.removeprefix(SVG) for node in nodes}, fills


def test_the_committed_pictures_are_what_the_script_draws() -> None:
    words, tags, fills = parts(IMAGES / "case.svg")
    for word in ("a phantom, no clinical result", "reference", "SFT", "EditGRPO", "An edit while"):
        assert word in words, word
    assert "image" in tags and {draw.COLOURS["added"], draw.COLOURS["removed"]} & fills
    words, _, fills = parts(IMAGES / "step.svg")
    rooms = {name for station in draw.STATIONS for name in " ".join(station).split()}
    assert all(name in words for name in rooms) and set(draw.OWNERS.values()) <= fills
    assert "sampling" in words and "update" in words


REPETITIONS = 60


def error(share: float, repetitions: int = REPETITIONS) -> float:
    """Three standard errors of a share that so many repetitions measure."""
    return 3.0 * (share * (1.0 - share) / repetitions) ** 0.5


def made(number: int) -> Population:
    """Make one of each kind: with words, several studies a patient, a system that is bad."""
    return (
        population(IU_XRAY, SYSTEMS["F1 0.5"], words=1000),
        population(HOSPITAL, SYSTEMS["rare ones bad"], patient=3),
        population(IU_XRAY, SYSTEMS["F1 0.2"]),
    )[number]


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("size", [100, 200, 600])
def test_printed_intervals_cover(kind, size) -> None:
    held = coverage(made(kind), size, REPETITIONS, resamples=300)
    papers = [name for name in held if name.startswith("macro_") and "frequent" not in name]
    assert len(papers) == 9 * (kind > 0), "of few positives: a note of the scorecard says so"
    printed = {name: share for name, share in held.items() if name not in papers}
    labels = {"micro_f1_13", "sample_f1", "macro_f1_frequent", "f1/*", "accuracy"}
    assert set(printed) >= (labels if kind else {"bleu_4", "rouge_l", "cider"})
    least = dict.fromkeys(printed, 0.92 - error(0.92))
    # of three findings at least in each set
    least |= {"f1/*": 0.90 - error(0.90, 3 * REPETITIONS)} if kind else {}
    assert {name: share for name, share in printed.items() if share < least[name]} == {}
    assert min(printed.values()) < 1.0, "nor are they ever so wide"


@pytest.mark.parametrize(("size", "differ"), [(50, 0), (200, 4), (200, 8)])
def test_equal_systems_seldom_differ(size, differ) -> None:
    one = population(IU_XRAY, SYSTEMS["F1 0.5"])
    alarms = false_alarms(one, size, 100, differ=differ, resamples=300)
    assert set(alarms) == set(TESTED)
    assert max(alarms.values()) <= (0.065 + error(0.065, 100) if differ != 4 else 0.0)
