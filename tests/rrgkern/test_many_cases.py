"""Cases are counted, reach the test, and a failing one fails it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.rrgkern.many_cases import BATCH, CASES, Cases, Choices, for_all

WORDS = Cases(lambda choices: choices.word(4), 4)


def test_every_case_reaches_the_test() -> None:
    seen = set()

    @for_all(WORDS, flag=st.booleans())
    def collect(cases: list[int], flag: bool) -> None:
        assert len(cases) == BATCH and flag in (True, False)
        seen.update(cases)

    collect()
    assert len(seen) >= CASES


def test_one_case_that_fails_fails_the_test() -> None:
    @for_all(WORDS)
    def all_but_one_in_a_hundred(cases: list[int]) -> None:
        assert all(case % 100 != 99 for case in cases)

    with pytest.raises(AssertionError):
        all_but_one_in_a_hundred()


def test_repetitions_do_not_count() -> None:
    @for_all(Cases(lambda choices: choices.below(7), 1))
    def few(cases: list[int]) -> None:
        assert max(cases) < 7

    with pytest.raises(AssertionError, match="only 7 cases were checked, not"):
        few()


def test_choices_run_out_into_zeros() -> None:
    choices = Choices(bytes([7, 1]))
    found = [choices.below(5), choices.of(["a", "b"]), choices.below(9), choices.word(2)]
    assert found == [2, "b", 0, 0]
