"""Requests gather into batches by size and time, in order, and fail alone."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.serving import app as served
from rrgclinical.serving.batcher import Batcher, BatchSettings, QueueFull, ScoringFailed
from tests.rrgclinical.serving.service import Lengths, opened, serving, until
from tests.rrgclinical.serving.test_service import asked


def started(largest: int = 4, wait: float = 0.0, queue: int = 10) -> tuple[Lengths, Batcher]:
    """A batcher whose scorer is held by a first request of one report."""
    scorer = Lengths()
    scorer.gate.clear()
    batcher = Batcher(scorer, BatchSettings(largest, wait, queue))
    batcher.submit(["first"], [""])
    until(lambda: scorer.calls == 1)
    return scorer, batcher


def test_a_batch_is_closed_by_size_and_no_request_is_cut() -> None:
    scorer, batcher = started()
    futures = [batcher.submit([name * k], [""]) for k, name in enumerate("abcde", 1)]
    large = batcher.submit(["f"] * 5, [""] * 5)
    scorer.gate.set()
    assert [f.result(30)["own"] for f in futures] == [[k / 7] for k in range(1, 6)]
    assert large.result(30)["own"] == [1 / 7] * 5
    assert [len(batch) for batch in scorer.batches] == [1, 4, 1, 5]
    assert [batch[0][0] for batch in scorer.batches] == ["f", "a", "e", "f"]
    batcher.close()


def test_a_batch_waits_for_more_no_longer_than_asked() -> None:
    scorer = Lengths()
    batcher = Batcher(scorer, BatchSettings(3, 60.0, 100))
    early = [batcher.submit(["a"], [""]), batcher.submit(["b"], [""])]
    assert not scorer.batches  # a minute is not over, and the batch is not full
    early.append(batcher.submit(["c"], [""]))
    assert [f.result(30)["own"] for f in early] == [[1 / 7]] * 3
    assert scorer.batches == [["a", "b", "c"]]
    batcher.close()
    soon = Batcher(scorer, BatchSettings(3, 0.01, 100))
    assert soon.submit(["d"], [""]).result(30)["own"] == [1 / 7]
    soon.close()
    with pytest.raises(QueueFull, match="is stopping"):
        soon.submit(["d"], [""])


def test_requests_of_another_progress_are_a_batch_of_their_own() -> None:
    scorer, batcher = started()
    futures = [batcher.submit(["a"], [""], p) for p in (0.5, 0.5, 1.0)]
    scorer.gate.set()
    assert [f.result(30)["total"] for f in futures] == [[0.5 / 7], [0.5 / 7], [1 / 7]]
    assert scorer.progress == [1.0, 0.5, 1.0]
    batcher.close()


def test_the_queue_is_bounded_and_what_it_refuses_is_not_scored() -> None:
    scorer, batcher = started(queue=5)
    taken = batcher.submit(["a"] * 3, [""] * 3)
    with pytest.raises(QueueFull, match="^3 reports are waiting and the queue holds 5; send the"):
        batcher.submit(["b"] * 3, [""] * 3)
    with pytest.raises(UserError, match="^6 reports in one request, and the queue holds 5; send"):
        batcher.submit(["c"] * 6, [""] * 6)
    scorer.gate.set()
    assert len(taken.result(30)["total"]) == 3 and batcher.counts.refused == 1
    assert batcher.submit(["b"] * 3, [""] * 3).result(30)
    assert not any("c" in batch for batch in scorer.batches)
    batcher.close()


def test_a_report_that_cannot_be_scored_costs_its_own_request_alone() -> None:
    """Also one whose scorer exits."""
    scorer, batcher = started()
    futures = [batcher.submit([text], [""]) for text in ("a", "poison", "exit", "bb")]
    scorer.gate.set()
    assert [futures[k].result(30)["own"] for k in (0, 3)] == [[1 / 7], [2 / 7]]
    for future, line in zip(
        futures[1:], (r"ArithmeticError: poison \(", "SystemExit: 3"), strict=False
    ):
        with pytest.raises(ScoringFailed, match=rf"^{line}.*; nothing of this"):
            future.result(30)
    assert batcher.counts.failed == 2
    batcher.close()


def test_a_request_that_is_given_up_ends_no_other() -> None:
    scorer, batcher = started(largest=2)
    gone, stays = (batcher.submit([name], [""]) for name in "ab")
    alone = batcher.submit(["cd"], [""])
    assert gone.cancel() and alone.cancel()
    scorer.gate.set()
    assert stays.result(30)["own"] == [1 / 7]
    assert batcher.submit(["e"], [""]).result(30)["own"] == [1 / 7] and batcher.alive
    assert ["cd"] not in scorer.batches and all("a" not in batch for batch in scorer.batches)
    batcher.close()


@pytest.mark.parametrize(
    "total",
    [None, [float("nan")], [float("inf")], [None], [True], ["0.5"], [0.5, 0.5], 0.5, [[0.5]], [1j]],
    ids=repr,
)
def test_what_is_no_number_is_no_score(total) -> None:
    batcher = Batcher(lambda *_: {} if total is None else {"total": np.array(total)})
    with pytest.raises(ScoringFailed, match="nothing of this request was scored"):
        batcher.submit(["a"], [""]).result(30)
    batcher.close()


@pytest.mark.parametrize(
    ("reports", "references"),
    [(["a", "b"], ["x"]), (["a"], ["x", "y"]), ("a", ["x"]), ({"a"}, ["x"]), ([None], ["x"])],
)
def test_a_request_that_does_not_fit_shifts_no_other(reports, references) -> None:
    _, batcher = started()
    with pytest.raises((TypeError, ValueError), match="wanted"):
        batcher.submit(reports, references)
    assert batcher.waiting == 0


# What the service does with connections, files and bodies, whatever is asked.
def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "SILENT_SECONDS", 0.2)
    with serving(Lengths()) as (url, _), opened(url) as silent, opened(url) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        while not slow.recv(4096).endswith(b"}"):
            pass
        slow.sendall(b"POST /score HTTP/1.1\r\nHost: a\r\n")
        assert silent.recv(1) == b"" and slow.recv(1) == b""
        assert asked(url, "/health")[0] == 200


def test_more_connections_than_files_are_told_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_most_connections", lambda: 2)
    with serving(Lengths()) as (url, _):
        held = [opened(url) for _ in range(2)]
        until(lambda: asked(url, "/health")[0] == 503)
        for connection in held:
            connection.close()
        until(lambda: asked(url, "/health")[0] == 200)
