"""Whole runs of a policy of text alone: reports from the other sections, studies without images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgpolicy.model.load import load_policy
from tests.rrgpolicy.model.common import text_directory
from tests.rrgtrain.common import ALL_STUDIES, phantoms
from tests.rrgtrain.runs import command, rows

DATA = ["data.source=iu_xray", f"data.root={phantoms()}", *ALL_STUDIES]
TEXT = [
    *("data.images=none", "eval.max_new_tokens=10", "eval.bootstrap=20", "eval.samples=2"),
    "eval.meteor=false",
    *("sft.steps=2", "sft.batch=2", "sft.eval_every=2", "sft.warmup=0", "rl.eval_every=2"),
    *("rl.steps=2", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=10", "rl.lr=0.01"),
    *("rl.beta=0.01", "checkpoint.steps=1", "deterministic=true"),
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("text")
    words = ["demo", "--out", "run", f"policy.path={text_directory()}", *DATA, *TEXT]
    done = command(*words, cwd=home)
    assert done.status == 0, done.err
    return home / "run"


def test_fine_tuning_and_reinforcement_learning_end_with_a_result(demo: Path) -> None:
    phases = [row["phase"] for row in rows(demo)]
    rl_phases = ["editgrpo_val", *["editgrpo"] * 2, "editgrpo_val"]  # the start is validated
    assert phases == ["sft"] * 2 + ["sft_val"] + rl_phases
    systems = json.loads((demo / "summary.json").read_text())["systems"]
    assert list(systems) == ["SFT", "EditGRPO"]
    assert (demo / "report.html").is_file()
    for name in ("sft", "editgrpo"):
        assert load_policy(demo / "checkpoints" / name).visual is None


def test_an_adapter_is_trained_from_a_checkpoint_and_judged(demo: Path, tmp_path: Path) -> None:
    start = str(demo / "checkpoints" / "sft")
    lora = ["policy.lora.rank=2", "policy.lora.dropout=0.1"]
    done = command("rl", "--from", start, "--out", "rl", *DATA, *TEXT, *lora, cwd=tmp_path)
    assert done.status == 0, done.err
    assert [r["kl"] for r in rows(tmp_path / "rl") if r["phase"] == "editgrpo"][1] > 0
    trained = tmp_path / "rl" / "checkpoints" / "editgrpo"
    assert (trained / "adapter_config.json").is_file()
    out = str(tmp_path / "eval")
    # by any name, the system is called as the directory
    done = command("eval", "--from", ".", "--out", out, *DATA, *TEXT, cwd=trained)
    assert done.status == 0, done.err
    judged = [json.loads((tmp_path / n / "summary.json").read_text()) for n in ("rl", "eval")]
    after, again = judged[0]["systems"]["EditGRPO"], judged[1]["systems"]["editgrpo"]
    assert again["metrics"] == {k: v for k, v in after["metrics"].items() if k in again["metrics"]}
