"""Rows name the commit that was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import rows


def test_a_tree_is_dirty_by_a_changed_file_but_not_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.check_output(["git", "-C", tmp_path, *who, *arguments], text=True)

    monkeypatch.setattr(rows, "ROOT", tmp_path)
    monkeypatch.delenv("RRGKERN_COMMIT", raising=False)
    assert rows.commit() == "unknown"
    results = tmp_path / "bench" / "results" / "cpu.jsonl"
    results.parent.mkdir(parents=True)
    source = tmp_path / "a.py"
    for file in (results, source):
        file.write_text("")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    head = git("rev-parse", "--short=12", "HEAD").strip()
    assert rows.commit() == head
    results.write_text("{}\n")
    assert rows.commit() == head
    source.write_text("x = 1\n")
    assert rows.commit() == f"{head}-dirty"
