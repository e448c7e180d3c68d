"""Four ranks have the gradients of one process, and take hardly more CPU time than it."""

from __future__ import annotations

import pytest

from bench.update_ranks import CORES, compare
from bench.update_step import Case


def test_four_ranks_have_the_gradients_and_the_core_seconds_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPU time, since the clock's says nothing on a busy machine; a batch of a few seconds."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # of the processes that are started
    found = compare(Case(8, 10, 64, 560), rounds=2, counts=(1, 4))
    # twice what two orders of summation in fp32 differ by in such a batch
    assert found["gradient_difference_4"] < 1e-6
    assert found["core_seconds_4"] <= CORES, found
