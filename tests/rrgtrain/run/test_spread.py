"""Commands on two ranks give the bytes of one process; room and sharing are decided once.

Three batches on two ranks: rank 0 has two of them, the other one.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rrgclinical.common import host
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run import room
from rrgtrain.run.session import FILE, decide_sharing
from rrgtrain.schema import PolicySettings
from tests.rrgpolicy.model.common import tiny_directory, tiny_policy
from tests.rrgpolicy.model.sighted import checkpoint
from tests.rrgtrain.common import OF_PHANTOM, phantoms, recipe
from tests.rrgtrain.runs import TINY_RUN, At, Done, command, ends, on_ranks

DATA = [*OF_PHANTOM, f"data.root={phantoms()}", "policy.prompt=short"]
EVAL = ["eval", "--from", str(tiny_directory()), "--out", "run", *DATA, "eval.split=train"]
EVAL += ["eval.limit=3", "eval.batch=1", "eval.max_new_tokens=8", "eval.bootstrap=20"]
EVAL += ["eval.meteor=false"]
SELECT = ["select", "--from", str(tiny_directory()), "--out", "run", *DATA, "select.samples=3"]
SELECT += ["select.batch=3", "select.share=0.5", "rl.max_new_tokens=8"]
TABLES = ("predictions.jsonl", "metrics.json", "table.csv", "table.tex", "samples.jsonl")


def ended(done: list[Done], *statuses: int) -> Done:
    """Rank 0's end, the others having said nothing."""
    assert [d.status for d in done] == list(statuses), ends(done)
    assert all(d.out + d.err == "" for d in done[1:])
    return done[0]


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "alone", tmp_path / "together"


def test_an_evaluation_on_two_ranks_writes_what_one_writes(homes: tuple[Path, Path]) -> None:
    alone, together = homes
    one = command(*EVAL, cwd=alone, status=0)
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
    one = command(*SELECT, cwd=alone, status=0)
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
    gone = on_ranks(*words, cwd=tmp_path, at=killed, statuses=[75, -9])
    assert "another rank is gone" in gone[0].last and "give the same command again" in gone[0].last
    killed = At("rrgtrain.train.written:RowFile.add", 3, "SIGKILL")
    on_ranks(*words, cwd=tmp_path, at=killed, rank=0, statuses=[-9, 75])
    ids = [json.loads(line)["id"] for line in (tmp_path / "cut.jsonl").open()]
    assert ids == ["0.png", "2.png"]
    stopped = At("rrgtrain.run.generate:write_batch", 1, "SIGTERM")
    last = ended(on_ranks(*words, cwd=tmp_path, at=stopped), 75, 75).last
    assert last.count("the reports written are kept") == 1
    ended(on_ranks(*words, cwd=tmp_path), 2, 2)
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".served")]


def opened(name: str, **options: Any) -> Policy:
    return load_policy(checkpoint(name), **options)


def settings(name: str, **values: Any) -> PolicySettings:
    return PolicySettings(path=str(checkpoint(name)), **values)


def test_a_resume_goes_the_same_way_or_says_why_not(tmp_path, capsys):
    policy = opened("qwen3")
    decide_sharing(policy, settings("qwen3", sharing="cache"), tmp_path)
    decide_sharing(policy, settings("qwen3"), tmp_path)  # auto would begin with a row
    assert policy.way == "cache"
    assert "so far" not in capsys.readouterr().err
    kept = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**kept, "way": "row"}))
    other = opened("qwen3_5")
    decide_sharing(other, settings("qwen3_5"), tmp_path)
    told = capsys.readouterr().err
    assert other.way == "cache"
    assert "not as before the resume: policy.sharing=row, which is not exact" in told
    assert "the run shared prompts by a packed row so far (what is installed has changed)" in told
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(UserError, match=r"sharing.json is not what a run has written; delete it"):
        decide_sharing(other, settings("qwen3_5"), tmp_path)


def test_weights_that_are_unread_are_stood_in_for(tmp_path: Path) -> None:
    tiny = load_policy(tiny_directory(), masters=True, unread=True)  # its tower packs windows
    decide_sharing(tiny, PolicySettings(path=str(tiny_directory())), tmp_path)
    assert tiny.is_packed
    policy = opened("qwen3_vl", masters=True, unread=True, gradient_checkpointing=True)
    assert all(p.is_meta for p in policy.model.parameters())
    decide_sharing(policy, settings("qwen3_vl"), tmp_path)
    assert policy.way == "row"
    assert all(p.is_meta for p in policy.model.parameters())
    decide_sharing(policy, settings("qwen3_vl", sharing="cache"), tmp_path)
    assert policy.way == "cache"  # on any number of ranks


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


@pytest.mark.parametrize("verb", ["sft", "demo"])
def test_a_run_without_room_is_refused_before_it_starts(verb, tmp_path, capsys, bytes_free):
    bytes_free.memory = 1 << 19
    words = ("plan.refuse=true", "deterministic=false", "--out", str(tmp_path / "run"))
    assert main([verb, *TINY_RUN, *words]) == 2
    out, err = capsys.readouterr()
    assert not (tmp_path / "run" / "config.yaml").exists() and not out
    assert "and 0.5 MiB of cpu memory are free" in err.splitlines()[-1]
