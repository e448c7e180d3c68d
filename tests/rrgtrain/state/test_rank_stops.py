"""Check that all ranks end alike where one of them alone meets the reason."""

from __future__ import annotations

from pathlib import Path

from tests.rrgtrain.runs import on_ranks

MAIN = "tests.rrgtrain.state.rank_stops"
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
    done = on_ranks(str(tmp_path), *CASES, cwd=tmp_path, main=MAIN)
    assert [d.status for d in done] == [0, 0], "".join(d.err[-2000:] for d in done)
    for lines in (d.out.splitlines() for d in done):
        for line, (first, last) in zip(lines, CASES.values(), strict=True):
            assert first.format(home=tmp_path) in line and line.endswith(last), line


def test_a_rank_that_does_not_answer_is_noticed_while_a_checkpoint_is_waited_for(
    tmp_path: Path,
) -> None:
    done = on_ranks(str(tmp_path), "silence", cwd=tmp_path, main=MAIN)
    assert done[0].out.startswith("another rank is gone"), done[0].out + done[0].err
