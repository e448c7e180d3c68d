"""Test that a start warns of what has no room, and refuses it where that is asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rrgclinical.common import host
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run import room
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import recipe
from tests.rrgtrain.runs import TINY_RUN

POLICY = tiny_policy()
TRAINED = sum(p.numel() for p in POLICY.model.parameters() if p.requires_grad)


def told(*words: str, resume: bool = False, stages: tuple[str, ...] = ("rl",)) -> list[str]:
    """The line of a refusal, if there is one."""
    try:
        room.check_room(
            recipe("plan.refuse=true", *words), POLICY, stages, Path("run"), resume=resume
        )
    except UserError as error:
        return [str(error)]
    return []


@pytest.fixture
def bytes_free(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    free = SimpleNamespace(memory=1 << 50, disk=1 << 50)
    monkeypatch.setattr(room, "memory_of_host", lambda: free.memory)
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _: SimpleNamespace(free=free.disk))
    monkeypatch.setattr(host, "room_of_quota", lambda _: None)
    return free


def test_the_border_is_16_bytes_a_trained_weight(bytes_free: SimpleNamespace) -> None:
    bytes_free.memory = 16 * TRAINED
    assert told() == []
    bytes_free.memory -= 1
    (line,) = told()
    assert line.startswith(f"{TRAINED:,} weights that train take ") and "`rrgtrain plan`" in line
    assert told(stages=()) == [], "an evaluation trains nothing"


def test_the_border_of_a_disk_is_12_bytes_in_each_checkpoint(bytes_free: SimpleNamespace) -> None:
    bytes_free.disk = 12 * TRAINED * 4
    assert told("checkpoint.keep=3") == []
    assert "checkpoint.keep=4 takes" in told("checkpoint.keep=4")[0]
    assert told("checkpoint.keep=4", resume=True) == [], "they lie there already"


def test_ranks_without_a_group_are_warned_of_and_never_refused(
    bytes_free: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.ranks, "size", lambda: 4)
    with pytest.warns(UserWarning, match="leaves 1 of them idle in rl"):
        assert told("rl.prompts=3", "scale.shard=1") == []


def test_an_evaluation_asks_nothing_of_the_disk(
    bytes_free: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "room_on_disk", None)
    assert told(stages=()) == []


def test_an_estimate_warns(bytes_free: SimpleNamespace) -> None:
    bytes_free.memory = 1
    with pytest.warns(UserWarning, match="weights that train take"):
        room.check_room(recipe(), POLICY, ["sft"], Path("run"), resume=False)


def test_ranks_without_a_group_are_counted() -> None:
    assert room.idle_ranks(recipe("rl.prompts=3").rl, 3) == ""
    line = room.idle_ranks(recipe("rl.prompts=4", "rl.minibatch=2").rl, 3)
    assert line.startswith("rl.minibatch=2 on 3 processes leaves 1 of them idle in rl")
    assert "sft.batch=1" in room.idle_ranks(recipe("sft.batch=1").sft, 2)


@pytest.mark.parametrize("verb", ["sft", "demo"])
def test_a_run_without_room_is_refused_before_it_starts(
    verb: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bytes_free: SimpleNamespace,
) -> None:
    bytes_free.memory = 1 << 19
    words = ("plan.refuse=true", "deterministic=false", "--out", str(tmp_path / "run"))
    assert main([verb, *TINY_RUN, *words]) == 2
    out, err = capsys.readouterr()
    assert not (tmp_path / "run" / "config.yaml").exists() and not out
    assert "and 0.5 MiB of cpu memory are free" in err.splitlines()[-1]
