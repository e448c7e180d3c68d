"""A resumed run says from which step on it had which settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from rrgtrain.state.identity import Change, as_line, changes_of, values_of
from tests.rrgtrain.runs import At, command, rows, started

SAMPLE = "rrgtrain.train.rl:sample_groups"
OTHER = ["rl.lr=0.05", "rl.beta=0.5", "reward.terms={bleu4: 1.0}"]


def test_each_change_is_told_and_kept_and_the_best_begins_anew(tmp_path: Path) -> None:
    """A run of four steps, stopped before its third and its fourth."""
    run, said = tmp_path / "run", []
    again = ["rl", "--resume", "run", *OTHER]
    for words, number in ((started("eval.best_by=reward"), 3), (again, 2)):
        said.append(command(*words, cwd=tmp_path, at=At(SAMPLE, number), status=75).err)
    again = ["rl", "--resume", "run", "reward.max_cost=9"]
    said.append(command(*again, cwd=tmp_path, status=0).err)
    assert "with reward.terms=" in said[1] and "chosen anew" in said[1]
    lines = [line for line in said[1].splitlines() if ": from step " in line]
    assert lines == [
        "rrgtrain: from step 2: rl.lr 0.01 -> 0.05 (resumed at step 2 of editgrpo)",
        "rrgtrain: from step 2: rl.beta 0.01 -> 0.5 (resumed at step 2 of editgrpo)",
        lines[2],
    ]
    assert ': reward.terms {"' in lines[2] and '} -> {"bleu4": 1.0} (' in lines[2]
    assert [text.count(": from step ") for text in said] == [0, 3, 1], "each is told once"
    changes = json.loads((run / "summary.json").read_text())["changes"]
    assert [as_line(change) for change in changes[:3]] == [x.partition(" ")[2] for x in lines]
    assert changes[3]["key"] == "reward.max_cost" and changes[3]["step"] == 3
    page, config = (run / "report.html").read_text(), (run / "config.yaml").read_text()
    assert config.splitlines()[:4] == [f"# {as_line(change)}" for change in changes]
    assert "from step 2: rl.lr 0.01 -&gt; 0.05" in page
    assert load_config(Recipe, run / "config.yaml", []).rl.lr == 0.05
    before = [(r["phase"], r["step"]) for r in rows(run)[: changes[0]["row"]]]
    start = ("editgrpo_val", -1)
    assert before == [start, ("editgrpo", 0), ("editgrpo", 1), ("editgrpo_val", 1)]


def test_what_a_checkpoint_knows_stands_over_the_file() -> None:
    """config.yaml may be edited between two resumes, or have been written by one without a step."""
    place: Change = {"step": 4, "resumed": "at step 4 of rl", "row": 7}
    earlier = {**place, "step": 2, "key": "rl.beta", "old": "0", "new": "1"}
    about = {"values": {"rl.lr": "1", "gone": "x"}, "changes": [earlier]}
    now = {"rl.lr": "2", "new.key": "y"}
    found = changes_of(about, {"rl.lr": "2"}, now, place)
    assert found == [earlier, {**place, "key": "rl.lr", "old": "1", "new": "2"}]
    assert changes_of({}, {"rl.lr": "2"}, now, place) == []
    assert [c["key"] for c in changes_of({}, {"rl.lr": "3"}, now, place)] == ["rl.lr"]


OWN = """def t(report: str, reference: str) -> float:
    return {value}
"""
BEHIND = ["rl.lr=${oc.env:LR}", "rl.beta=${rl.lr}", "reward.terms={'mine:t': 1.0}"]


def test_what_stands_behind_a_text_is_told(tmp_path: Path) -> None:
    """Another environment and another mine.py leave no word of config.yaml changed."""
    own = tmp_path / "mine.py"
    own.write_text(OWN.format(value=1.0))
    words = started("eval.best_by=reward", *BEHIND)
    command(*words, cwd=tmp_path, at=At(SAMPLE, 3), world={"LR": "0.01"}, status=75)
    again = ["rl", "--resume", "run"]
    done = command(*again, cwd=tmp_path, at=At(SAMPLE, 2), world={"LR": "0.01"})
    assert done.status == 75 and ": from step " not in done.err and "chosen anew" not in done.err
    assert "rrgtrain: run/config.yaml has this run import mine:t (reward.terms)\n" in done.err
    own.write_text(OWN.format(value=7.0))
    done = command(*again, cwd=tmp_path, world={"LR": "0.75"}, status=0)
    where = "(resumed at step 3 of editgrpo)"
    told = [
        f"from step 3: rl.lr: ${{oc.env:LR}} stands for another value than before {where}",
        f"from step 3: rl.beta: ${{rl.lr}} stands for another value than before {where}",
        f"from step 3: reward.terms: mine.py has changed {where}",
    ]
    for line in told:
        assert f"rrgtrain: {line}\n" in done.err
    assert "validations with another mine.py; they are chosen anew" in done.err
    run = tmp_path / "run"
    changes = json.loads((run / "summary.json").read_text())["changes"]
    assert [as_line(change) for change in changes] == told
    assert (run / "config.yaml").read_text().splitlines()[:3] == [f"# {line}" for line in told]
    assert "reward.terms: mine.py has changed" in (run / "report.html").read_text()
    kept = (path.read_bytes() for path in run.glob("resume/*/manifest.json"))
    assert not any(b"0.75" in content for content in kept)


def test_a_secret_is_in_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "sk-1")
    path = tmp_path / "config.yaml"
    path.write_text("a: ${oc.env:SECRET}\nb: {c: 'http://u:pw@h/v1?api-key=KEY', d: \"x\\ny\"}\n")
    values = values_of(path, {})
    assert values["a"] == "${oc.env:SECRET}" and "\n" not in values["b.d"]
    assert not any(word in str(values) for word in ("sk-1", "pw", "KEY"))
