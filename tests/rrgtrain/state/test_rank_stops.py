"""Check that all ranks end alike where one of them alone meets the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rrgtrain.runs import on_ranks

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


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_end_in_one_line(case: str, tmp_path: Path) -> None:
    done = on_ranks(
        str(tmp_path), case, cwd=tmp_path, main="tests.rrgtrain.state.rank_stops", patience=60.0
    )
    assert [d.status for d in done] == [0, 0], "".join(d.err[-2000:] for d in done)
    first, last = CASES[case]
    for lines in (d.out.splitlines()[0] for d in done):
        assert first.format(home=tmp_path) in lines and lines.endswith(last), lines
