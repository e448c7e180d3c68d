"""Each text is read once on a node, and rewards do not depend on the number of ranks."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.rrgtrain.rewards.reading_suite import EPOCHS, TERMS, Read, reports, studies
from tests.rrgtrain.runs import on_ranks

WORLDS = (1, 2, 4)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Read]]:
    """Return what each rank of each world read."""
    found = {}
    for count in WORLDS:
        home = tmp_path_factory.mktemp(f"ranks-{count}")
        main = "tests.rrgtrain.rewards.reading_suite"
        done = on_ranks(str(home), cwd=home, count=count, main=main)
        assert [d.status for d in done] == [0] * count, [d.err for d in done]
        found[count] = [
            pickle.loads((home / f"{rank}.pickle").read_bytes()) for rank in range(count)
        ]
    return found


@pytest.mark.parametrize("count", WORLDS)
def test_each_text_is_read_once(worlds: dict[int, list[Read]], count: int) -> None:
    references = {study.report or "" for study in studies()}
    written = {text for e in range(EPOCHS) for study in studies() for text in reports(study, e)}
    for reader in ("labelled", "extracted"):
        read = [text for rank in worlds[count] for text in getattr(rank, reader) if text]
        assert sorted(read) == sorted(references | written), reader


def test_the_ranks_share_the_work(worlds: dict[int, list[Read]]) -> None:
    for reader in ("labelled", "extracted"):
        counts = [len(getattr(rank, reader)) for rank in worlds[4]]
        assert min(counts) >= sum(counts) / 8, (reader, counts)


@pytest.mark.parametrize("count", WORLDS[1:])
def test_rewards_have_the_bits_of_one_process(worlds: dict[int, list[Read]], count: int) -> None:
    (alone,) = worlds[1]
    for rank in worlds[count]:
        # each epoch takes the studies in its own order, which is that of one process
        for one, several in zip(alone.scores, rank.scores, strict=True):
            assert one.keys() == several.keys() == {"total", *TERMS}
            for name in one:
                assert np.array_equal(one[name], several[name]), name
    assert len(np.unique(alone.scores[0]["total"])) > 4


@pytest.mark.parametrize("count", WORLDS[1:])
@pytest.mark.parametrize("place", ["ahead", "corpus"])
def test_a_reader_that_fails_on_one_rank_is_one_line_on_all(
    worlds: dict[int, list[Read]], count: int, place: str
) -> None:
    lines = {rank.errors[place] for rank in worlds[count]}
    assert len(lines) == 1
    (line,) = lines
    assert "\n" not in line
    assert "MemoryError: the reader's GPU is full (reading_suite.py:" in line
