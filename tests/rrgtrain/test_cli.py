"""The command line: a whole run at the smallest size, and one line for every bad input."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from rrgpolicy.model.load import load_policy
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY, phantoms
from tests.rrgtrain.runs import finished_demo

SMALL = [
    *SMALL_POLICY,
    *("sft.steps=2", "sft.batch=2", "sft.eval_every=2"),
    *("rl.steps=2", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=12", "rl.eval_every=2"),
    *("eval.max_new_tokens=12", "eval.bootstrap=20", "eval.samples=2"),
]
SFT = ["sft", *SMALL]


@pytest.fixture(autouse=True)
def _elsewhere(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered or written outside the test's own directory."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def iu_xray(root: Path) -> list[str]:
    return ["data.source=iu_xray", f"data.root={root}"]


def works(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def demo() -> Path:
    """One demo of the smallest size, which other files read too; not to be written to."""
    return finished_demo()[0]


def test_a_demo_from_nothing_to_a_report(demo: Path) -> None:
    table = (demo.parent / "out.txt").read_text().splitlines()
    assert table[0] == "SFT, then EditGRPO"
    assert any(line.split()[:3] == ["system", "micro-F1,", "13"] for line in table)
    assert [line.split()[0] for line in table if " s" in line and "(" in line][:2] == [
        "SFT",
        "EditGRPO",
    ]
    assert "report: run/report.html" in table
    summary = json.loads((demo / "summary.json").read_text())
    assert list(summary["systems"]) == ["SFT", "EditGRPO"]
    assert load_config(Recipe, demo / "config.yaml", []).data.phantom.train == 8, "it repeats it"
    rows = [json.loads(line) for line in (demo / "metrics.jsonl").read_text().splitlines()]
    halves = [*["sft"] * 2, "sft_val"] * 2, [*["editgrpo"] * 2, "editgrpo_val"] * 2
    assert [row["phase"] for row in rows] == [*halves[0], "editgrpo_val", *halves[1]]
    assert "EditGRPO" in (demo / "report.html").read_text()
    assert list((demo / "events").glob("*/events.out.tfevents.*"))
    for name in ("sft", "editgrpo"):
        assert load_policy(demo / "checkpoints" / name).eos_ids


def test_its_standard_error_is_progress_and_nothing_else(demo: Path) -> None:
    shown = ("phantom", "vision warm-up", "sft", "evaluate SFT", "editgrpo", "evaluate EditGRPO")
    lines = (demo.parent / "err.txt").read_text().splitlines()
    assert lines and all(line.startswith(shown) for line in lines), lines
    assert {next(s for s in shown if line.startswith(s)) for line in lines} == set(shown)


@pytest.mark.parametrize("more", [0, 1, 2])
def test_interrupts_never_end_in_a_traceback(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def told(*_: object) -> None:
        for _ in range(more):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("rrgtrain.cli._run", interrupted)
    monkeypatch.setattr("rrgtrain.cli._print_last_line", told)
    assert main(["doctor"]) == 130
    assert signal.getsignal(signal.SIGINT) is before


OWN = """
import torch
from rrgtrain.algorithms import Algorithm
from rrgtrain.algorithms.base import loss_of, no_completion

def build(recipe):
    def advantages(groups, rewards):
        return torch.linspace(-1, 1, len(rewards))
    return Algorithm("mine", 2, no_completion, advantages, loss_of(recipe.rl, recipe.rollout))
"""


def test_an_algorithm_in_the_working_directory(demo, tmp_path, capsys, refusal):
    (tmp_path / "own_of_the_cli.py").write_text(OWN)
    start = str(demo / "checkpoints" / "sft")
    words = [*SMALL, *iu_xray(demo / "data")]
    name = "rl.algorithm=own_of_the_cli:build"
    out = works(capsys, "rl", "--from", start, "--out", "runs/own", name, *words)
    assert "own_of_the_cli:build" in out
    load_policy("runs/own/checkpoints/own_of_the_cli.build")
    line = refusal("rl", "--from", start, "--out", "runs/b", name + "er", *words)
    assert "own_of_the_cli.py has no builder" in line and not Path("runs/b").exists()


def test_phantoms_alone(capsys, refusal):
    out = works(capsys, "data", "--out", "phantoms", *OF_PHANTOM)
    assert out.strip() == "phantoms/annotation.json"
    line = refusal("data", "--out", "elsewhere", "data.source=nih")
    assert "data.source=nih is read, not written" in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sft"], "the following arguments are required: --out; see `rrgtrain sft --help`"),
        (["report", "nowhere", "rl.steps=3"], "unrecognized arguments: rl.steps=3"),
        (["sft", "a\x1b[2J\nrrgtrain: done.yaml", "--out", "r"], "a\\x1b[2J\\nrrgtrain: done.yaml"),
        (["demo", "--out", "r", "policy.path=./nowhere"], "no such directory: ./nowhere"),
        (["rl", "--out", "r", "--from", "runs/typo"], "no such directory: runs/typo"),
        (["sft", "--out", "r", "data.source=iu_xray"], "needs data.root=<directory of the data"),
        (["sft", "--out", "r", "data.source=nih", "data.root=nil"], "nil does not exist; wanted"),
        (["demo", "--out", "r", "data.phantom.normal=7"], "normal is 7.0; wanted a value >= 0 and"),
        (["demo", "--out", "r", "policy.device=cuda"], "policy.device=cuda, but PyTorch"),
        (["demo", "--out", "r", "rl.group=7"], "rl.group=7 is odd, but EditGRPO pairs"),
        (["demo", "--out", "r", "policy.width=96"], "policy.width=96; use a multiple of 64"),
    ],
    ids=str,
)
def test_wrong_words_are_told_in_one_line(words, told, tmp_path, refusal, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert told in refusal(*words)
    left = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "run.lock"]
    assert not left, "nothing is written"
    if any(word.startswith(("policy.", "runs/")) for word in words):
        assert not (tmp_path / "r").exists(), "what the policy starts from comes first"


NIH = "Image Index,Finding Labels,Patient ID\n"


@pytest.fixture
def nih(tmp_path: Path) -> Path:
    """Radiographs with labels and no reports, of enough patients for every split."""
    root = tmp_path / "nih"
    root.mkdir()
    names = ("Cardiomegaly", "Effusion|Mass", "No Finding", "Edema")
    rows = []
    for patient in range(24):
        source = phantoms() / "images" / f"phantom_train_{patient % 8:06d}" / "0.png"
        shutil.copy(source, root / f"{patient:08d}_000.png")
        rows.append(f"{patient:08d}_000.png,{names[patient % 4]},{patient}\n")
    (root / "labels.csv").write_text(NIH + "".join(rows))
    return root


def from_nih(root: Path) -> list[str]:
    return ["data.source=nih", f"data.root={root}", *SMALL]


def test_labels_without_reports(nih, demo, capsys, refusal):
    start = ["--from", str(demo / "checkpoints" / "sft"), "--out", "runs/nih"]
    line = refusal(*SFT, "--out", "run", *from_nih(nih))
    assert "no training study has a report" in line
    line = refusal("rl", "nih", "--out", "run", "--from", "tiny", *from_nih(nih))
    assert "policy.path=tiny builds its tokenizer from training reports" in line
    out = works(capsys, "rl", "nih", *start, *from_nih(nih))
    assert "Dr. GRPO" in out and "checkpoint: runs/nih/checkpoints/dr_grpo" in out
