"""The commands on real files: reports of Open-i."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgpolicy.model.load import load_policy
from rrgtrain.cli import main
from tests.real_data import REAL
from tests.rrgtrain.common import SMALL_POLICY

pytestmark = [
    pytest.mark.usefixtures("at_home"),
    pytest.mark.realdata,
    pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data at {REAL}; set RRG_DATA"),
]

FEW_STEPS = [
    *SMALL_POLICY,
    *("sft.steps=3", "sft.batch=4", "sft.eval_every=3"),
    *("rl.steps=2", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=16", "rl.eval_every=2"),
    *("eval.max_new_tokens=16", "eval.bootstrap=20", "eval.samples=2", "eval.limit=4"),
]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, list[dict], dict]:
    """Standard output, the rows of the log and the summary of a command that works."""
    out = words[words.index("--out") + 1]
    assert main(list(words)) == 0, capsys.readouterr().err
    lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    summary = json.loads((Path(out) / "summary.json").read_text())
    return capsys.readouterr().out, [json.loads(line) for line in lines], summary


def test_reports_of_iu_xray_without_images(tmp_path, capsys):
    data = [f"data.root={REAL / 'iu_xray'}", "data.images=none", *FEW_STEPS]
    out, rows, summary = run(capsys, "sft", "iu_xray", "--out", "runs/sft", *data)
    assert "micro-F1" in out and "checkpoint: runs/sft/checkpoints/sft" in out
    assert [row["phase"] for row in rows] == ["sft"] * 3 + ["sft_val"]
    assert rows[2]["loss"] < rows[0]["loss"]
    assert "4 held-out studies" in summary["notes"][0]

    start = ["--from", "runs/sft/checkpoints/sft", "--out", "runs/rl"]
    out, rows, summary = run(capsys, "rl", "iu_xray", *start, *data)
    assert list(summary["systems"]) == ["start", "EditGRPO"]
    assert "EditGRPO" in out and "edits by rule" in out
    steps = [row for row in rows if row["phase"] == "editgrpo"]
    # an untrained policy misses findings of every reference
    assert sum(v for row in steps for k, v in row.items() if k.startswith("edits/")) == 8
    assert any(row["grad_norm"] > 0 for row in steps)
    load_policy("runs/rl/checkpoints/editgrpo")
