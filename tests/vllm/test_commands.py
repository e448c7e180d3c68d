"""`eval`, `generate` and `select` through vLLM in process: the greedy reports of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgtrain.cli import main
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgtrain.common import OF_PHANTOM, phantoms
from tests.rrgtrain.runs import on_ranks

ENGINE = ["rollout.max_model_len=256", "rollout.memory=0.1", "policy.prompt=short"]
SHORT = ["eval.max_new_tokens=8", "eval.batch=2", "rl.max_new_tokens=8", "select.samples=2"]
DATA = [*OF_PHANTOM, f"data.root={phantoms()}", "eval.split=train", "eval.limit=3"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_generate_writes_what_the_trainer_writes(tmp_path: Path) -> None:
    films = str(phantoms())
    found = []
    for engine in ("transformers", "vllm"):
        more = [f"rollout.engine={engine}", *ENGINE, *SHORT]
        out = tmp_path / f"{engine}.jsonl"
        assert main(["generate", str(tiny_directory()), films, "--out", str(out), *more]) == 0
        found.append([json.loads(line)["report"] for line in out.open()])
    assert found[0] == found[1]
    assert len(set(found[0])) > 1


def test_select_draws_through_it(tmp_path: Path) -> None:
    words = ["--from", str(tiny_directory()), *DATA, *ENGINE, *SHORT, "rollout.engine=vllm"]
    assert main(["select", *words, "--out", str(tmp_path / "subset")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "subset" / "sampled.jsonl").open()]
    assert len(rows) == 8 and all(len(row["reports"]) == 2 for row in rows)


def test_two_ranks_evaluate_to_what_the_trainer_writes(tmp_path: Path) -> None:
    words = ["eval", "--from", str(tiny_directory()), *DATA, "eval.meteor=false", *ENGINE, *SHORT]
    words += ["eval.bootstrap=20", "eval.batch=1"]
    assert main([*words, "--out", str(tmp_path / "transformers")]) == 0
    for done in on_ranks(*words, "--out", "vllm", "rollout.engine=vllm", cwd=tmp_path):
        assert done.status == 0, done.err
    assert not (tmp_path / "vllm" / "served").exists()
    own, theirs = (tmp_path / name / "predictions.jsonl" for name in ("transformers", "vllm"))
    assert theirs.read_bytes() == own.read_bytes()
