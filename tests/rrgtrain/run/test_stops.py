"""Check whole runs that end while a checkpoint is written, or without the time for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rrgtrain.runs import At, command, differences, finished, started

DISK = "torch.distributed.checkpoint.filesystem:FileSystemWriter.write_data"
SAMPLE = "rrgtrain.train.rl:sample_groups"
GO_ON = ["rl", "--resume", "run"]


@pytest.fixture(scope="module")
def alone() -> Path:
    return finished(*started())[0]


def test_a_kill_or_a_second_interrupt_while_one_is_written(alone: Path, tmp_path: Path) -> None:
    done = command(*started(), cwd=tmp_path, at=At(DISK, 3, "SIGKILL"))
    assert done.status == -9
    resume = tmp_path / "run" / "resume"
    assert any(p.name.startswith(".") for p in resume.iterdir()), "it was being written"
    done = command(*GO_ON, cwd=tmp_path, at=At(DISK, 2, "SIGINT+sleep+SIGINT+sleep"))
    assert done.status == 130 and done.last == "rrgtrain: interrupted", done.err
    done = command(*GO_ON, cwd=tmp_path)
    assert done.status == 0, done.err
    assert differences(alone, tmp_path / "run") == []


def test_a_stop_without_grace_goes_on_from_the_last_checkpoint(alone: Path, tmp_path: Path) -> None:
    words = started("checkpoint.steps=2", "state.grace=0")
    done = command(*words, cwd=tmp_path, at=At(SAMPLE, 4))
    assert done.status == 75
    assert "stopped by SIGTERM after 3 steps of editgrpo; no checkpoint was written: " in done.last
    assert "editgrpo-2, so 1 steps are lost; go on with: rrgtrain rl --resume run" in done.last
    done = command(*GO_ON, cwd=tmp_path)
    assert done.status == 0, done.err
    assert differences(alone, tmp_path / "run") == ["config.yaml"], "the two settings"
