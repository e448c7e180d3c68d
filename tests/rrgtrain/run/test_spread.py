"""`eval`, `select` and `generate` on two ranks: the bytes of one process, and one line of an error.

Three batches on two ranks: rank 0 has two of them, the other one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgtrain.common import OF_PHANTOM, phantoms
from tests.rrgtrain.runs import At, Done, command, on_ranks

DATA = [*OF_PHANTOM, f"data.root={phantoms()}", "policy.prompt=short"]
EVAL = ["eval", "--from", str(tiny_directory()), "--out", "run", *DATA, "eval.split=train"]
EVAL += ["eval.limit=3", "eval.batch=1", "eval.max_new_tokens=8", "eval.bootstrap=20"]
EVAL += ["eval.meteor=false"]
SELECT = ["select", "--from", str(tiny_directory()), "--out", "run", *DATA, "select.samples=3"]
SELECT += ["select.batch=3", "select.share=0.5", "rl.max_new_tokens=8"]
TABLES = ("predictions.jsonl", "metrics.json", "table.csv", "table.tex", "samples.jsonl")


def ended(done: list[Done], *statuses: int) -> Done:
    """Rank 0's end, the others having said nothing."""
    assert [d.status for d in done] == list(statuses), "".join(d.err for d in done)
    assert all(d.out + d.err == "" for d in done[1:])
    return done[0]


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "alone", tmp_path / "together"


def test_an_evaluation_on_two_ranks_writes_what_one_writes(homes: tuple[Path, Path]) -> None:
    alone, together = homes
    one = command(*EVAL, cwd=alone)
    assert one.status == 0, one.err
    two = ended(on_ranks(*EVAL, cwd=together), 0, 0)
    for name in TABLES:
        same = (alone / "run" / name).read_bytes() == (together / "run" / name).read_bytes()
        assert same, name
    assert one.out == two.out
    assert "3/3 100%" in two.err
    first = [*EVAL, "eval.limit=1"]
    first[first.index("run")] = "first"
    ended(on_ranks(*first, cwd=together), 0, 0)
    whole = (alone / "run" / "predictions.jsonl").read_text().splitlines(keepends=True)
    assert (together / "first" / "predictions.jsonl").read_text() in "".join(whole)


def test_an_error_of_one_rank_is_one_line_and_leaves_no_evaluation(tmp_path: Path) -> None:
    at = At("rrgtrain.train.evaluate:write_batch", 1, "reward")
    last = ended(on_ranks(*EVAL, cwd=tmp_path, at=at), 75, 75).last
    assert "reward term facts failed" in last
    assert not (tmp_path / "run" / "predictions.jsonl").exists()


def test_a_selection_on_two_ranks_is_that_of_one_and_goes_on(homes: tuple[Path, Path]) -> None:
    alone, together = homes
    one = command(*SELECT, cwd=alone)
    assert one.status == 0, one.err
    at = At("rrgtrain.train.written:RowFile.add", 2)
    stopped = ended(on_ranks(*SELECT, cwd=together, at=at, rank=0), 75, 75)
    assert "stopped by SIGTERM" in stopped.last
    two = ended(on_ranks(*SELECT, cwd=together), 0, 0)
    assert one.out == two.out
    for name in ("subset.json", "sampled.jsonl"):
        assert (alone / "run" / name).read_bytes() == (together / "run" / name).read_bytes()


def films(home: Path) -> list[str]:
    """Words for six images, of which one is broken."""
    folder = home / "films"
    folder.mkdir()
    for seed in range(6):
        pixels = np.random.default_rng(seed).integers(0, 255, (40, 40), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{seed}.png")
    whole = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(whole[:200])
    small = ["policy.prompt=short", "eval.max_new_tokens=6", "eval.batch=2"]
    return ["generate", str(tiny_directory()), str(folder), *small]


def test_a_selection_refuses_ranks_that_read_other_studies(tmp_path: Path) -> None:
    at = At("rrgtrain.run.data:open_studies", act="fewer")
    first = ended(on_ranks(*SELECT, cwd=tmp_path, at=at), 2, 2)
    assert "reads other studies (train " in first.last and "(data.root)" in first.last


def test_reports_of_two_ranks_are_those_of_one_after_any_stop(tmp_path: Path) -> None:
    words = films(tmp_path)
    one = command(*words, "--out", "one.jsonl", cwd=tmp_path)
    assert one.status == 2 and "1 of 6 studies have no report" in one.last
    two = ended(on_ranks(*words, "--out", "two.jsonl", cwd=tmp_path), 2, 2)
    assert two.last.replace("two.", "one.") == one.last
    assert "(5 written, 6 studies)" in two.out and two.err.count("for research only") == 1
    assert "6/6 100%" in two.err
    for end in ("", ".errors.jsonl"):
        wanted = (tmp_path / f"one.jsonl{end}").read_bytes()
        assert (tmp_path / f"two.jsonl{end}").read_bytes() == wanted

    words += ["--out", "cut.jsonl"]
    killed = At("rrgtrain.run.generate:write_batch", 1, "SIGKILL")
    gone = on_ranks(*words, cwd=tmp_path, at=killed)
    assert [d.status for d in gone] == [75, -9]
    assert "another rank is gone" in gone[0].last and "give the same command again" in gone[0].last
    killed = At("rrgtrain.train.written:RowFile.add", 3, "SIGKILL")
    assert [d.status for d in on_ranks(*words, cwd=tmp_path, at=killed, rank=0)] == [-9, 75]
    ids = [json.loads(line)["id"] for line in (tmp_path / "cut.jsonl").open()]
    assert ids == ["0.png", "2.png"]
    stopped = At("rrgtrain.run.generate:write_batch", 1, "SIGTERM")
    last = ended(on_ranks(*words, cwd=tmp_path, at=stopped), 75, 75).last
    assert last.count("the reports written are kept") == 1
    ended(on_ranks(*words, cwd=tmp_path), 2, 2)
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".served")]
