"""Checkpoints that several ranks write, and as many, more or one read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from rrgtrain.state.store import MANIFEST, CheckpointStore
from tests.rrgtrain.runs import on_ranks
from tests.rrgtrain.state.rank_store import wholes

MAIN = "tests.rrgtrain.state.rank_store"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("ranks")
    for verb in ("write", "fail"):
        done = on_ranks(verb, str(home / "resume"), cwd=home, main=MAIN)
        assert [d.status for d in done] == [0, 0], done[0].err + done[1].err
    return home


def test_every_rank_writes_its_part_and_a_full_disk_on_one_leaves_the_old(written: Path) -> None:
    (kept,) = (written / "resume").iterdir()
    assert kept.name == "000001-rl-1"
    files = json.loads((kept / MANIFEST).read_text())["files"]
    assert set(files) == {".metadata", "state.pt", "__0_0.distcp", "__1_0.distcp"}


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_ranks_reads_it(count: int, written: Path) -> None:
    done = on_ranks("read", str(written / "resume"), cwd=written, count=count, main=MAIN)
    assert [d.status for d in done] == [0] * count, "".join(d.err for d in done)


def test_one_process_reads_it(written: Path) -> None:
    found = CheckpointStore(written / "resume", 2).newest()
    assert found is not None
    state = found.state
    assert all(torch.equal(a, b) for a, b in zip(state["sharded"], wholes(), strict=True))
    assert len(state["own"]) == 2 and state["own"][1] is None, "what is other ranks' own"


def test_a_part_of_another_rank_that_is_spoilt_is_told(written: Path, tmp_path: Path) -> None:
    resume = tmp_path / "resume"
    resume.mkdir()
    shutil.copytree(written / "resume" / "000001-rl-1", resume / "000001-rl-1")
    part = resume / "000001-rl-1" / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    done = on_ranks("read", str(resume), cwd=tmp_path, main=MAIN)
    assert done[0].status != 0 and "__1_0.distcp has" in done[0].err


# Check that all ranks end alike where one of them alone meets the reason.
ENDINGS = "tests.rrgtrain.state.rank_stops"
CASES = {
    "write_failure": (
        "no checkpoint could be written to {home}/write failure/resume: No space left on device",
        "there is none before it; make room []",
    ),
    "end_of_validation": (
        "rl, step 1, rank 0: No space left on device (metrics.jsonl)",
        "['000001-rl-1']",
    ),
    "end_of_step": (
        "rl, step 1, rank 0: No space left on device (metrics.jsonl)",
        "the step was half done, so the last checkpoint counts ['000001-rl-1']",
    ),
    "saving": ("stopped by SIGTERM after 1 steps of rl", "['000001-rl-1']"),
}


def test_all_ranks_end_in_one_line(tmp_path: Path) -> None:
    done = on_ranks(str(tmp_path), *CASES, cwd=tmp_path, main=ENDINGS)
    assert [d.status for d in done] == [0, 0], "".join(d.err[-2000:] for d in done)
    for lines in (d.out.splitlines() for d in done):
        for line, (first, last) in zip(lines, CASES.values(), strict=True):
            assert first.format(home=tmp_path) in line and line.endswith(last), line


def test_a_rank_that_does_not_answer_is_noticed_while_a_checkpoint_is_waited_for(
    tmp_path: Path,
) -> None:
    done = on_ranks(str(tmp_path), "silence", cwd=tmp_path, main=ENDINGS)
    assert done[0].out.startswith("another rank is gone"), done[0].out + done[0].err
