"""Four ranks have the gradients of one process, and take hardly more CPU time than it."""

from __future__ import annotations

import pytest

from bench.update_ranks import CORES, compare
from bench.update_step import Case

# The smallest batch at which the bound holds with room: eight groups took 1.13 to 1.18 times the
# CPU time of one process, four groups 1.25. With DTensors in AdamW and clipping, which test_optim
# refuses, they took 1.21 and 1.29: this test would not see it.
SMALLEST = Case(groups=8, members=10, length=64, pixels=560)


@pytest.mark.gate
def test_four_ranks_have_the_gradients_and_the_core_seconds_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPU time, since the clock's says nothing on a busy machine; both worlds take turns.

    Beside other tests, the least of two turns was up to 1.31: there, more turns are taken.
    """
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # of the processes that are started
    found = compare(SMALLEST, rounds=20, counts=(1, 4), enough=CORES)
    # other orders of summation in fp32: 3e-7 was seen
    apart = found["gradient_difference_4"]
    assert apart < 1e-6, f"gradients of four ranks are {apart:.1e} of their norm from those of one"
    ratio, more = found["core_seconds_4"], found["core_seconds_more_4"]
    assert ratio <= CORES, (
        f"four ranks take {ratio:.3f} times the CPU time of one process for {SMALLEST}, "
        f"{more:.2f} s more; wanted at most {CORES} (1.13 to 1.18, 0.3 to 0.4 s more, on "
        "an idle machine)"
    )
