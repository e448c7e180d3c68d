"""Ranks wait for what rank 0 does alone, however long it takes."""

from __future__ import annotations

from pathlib import Path

from tests.rrgtrain.runs import on_ranks


def test_ranks_wait_for_rank_0_beyond_their_timeout(tmp_path: Path) -> None:
    done = on_ranks(cwd=tmp_path, main="tests.rrgtrain.run.main_suite")
    assert [d.status for d in done] == [0, 0], [d.err for d in done]
    assert [d.out for d in done] == ["the scorecard cannot be written\n"] * 2
