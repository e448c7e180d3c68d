"""Properties checked on hundreds of drawn cases, several of them in one call of the library.

What is counted is distinct cases, neither calls nor repetitions: `for_all` fails unless it has
checked as many as it promises. `make slow NAME=products` digs deeper than the default run,
RRGKERN_CASES=20000 deeper yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

CASES = int(os.environ.get("RRGKERN_CASES", "600"))
BATCH = 25
SAME_CASES = os.environ.get("RRGKERN_SAME_CASES") == "1"
SPARE = 10  # lists beyond what is needed: hypothesis repeats some, and tries all zeros
ROUNDS = 6  # at most: beside several options it repeats more


class Choices:
    """Choices read off drawn bytes: 0, the simplest, where they have run out."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def below(self, n: int) -> int:
        """One of 0, ..., n - 1, for n up to 256."""
        return next(self._data, 0) % n

    def of(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def word(self, count: int = 8) -> int:
        """An integer of `count` bytes, not negative."""
        return int.from_bytes(bytes(self.below(256) for _ in range(count)), "little")

    def seed(self) -> int:
        """Any int64."""
        return self.word() - 2**63


@dataclass(frozen=True)
class Cases:
    """Hold what `make` builds from `size` drawn bytes.

    Bytes, since a strategy made of strategies takes a hundred times as long; and those of a whole
    list in one draw, since hypothesis likes to repeat the parts of a list.
    """

    make: Callable[[Choices], Hashable]
    size: int

    def lists(self, count: int) -> st.SearchStrategy[list[Any]]:
        """Lists of `count` cases."""
        total = self.size * count

        def cut(data: bytes) -> list[Any]:
            parts = (data[k : k + self.size] for k in range(0, total, self.size))
            return [self.make(Choices(part)) for part in parts]

        return st.binary(min_size=total, max_size=total).map(cut)


def for_all(
    cases: Cases, *, batch: int = BATCH, **options: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call the test with lists of `batch` drawn cases until it has passed on CASES different ones.

    `options` are drawn once a list.
    """

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        checked: set[Hashable] = set()

        @settings(
            max_examples=-(-CASES // batch) + SPARE,
            phases=[Phase.reuse, Phase.generate],
            derandomize=False,  # it would draw the same in every round
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases.lists(batch), st.fixed_dictionaries(options))
        def run(drawn: list[Any], chosen: dict[str, Any]) -> None:
            try:
                test(drawn, **chosen)
            except Exception:
                # In place of shrinking, which takes minutes: the simplest that fails alone.
                for case in sorted(drawn, key=lambda case: len(repr(case))):
                    test([case], **chosen)
                raise
            checked.update(drawn)

        def counted() -> None:
            checked.clear()
            for number in range(ROUNDS):
                (seed(number)(run) if SAME_CASES else run)()
                if len(checked) >= CASES:
                    break
            assert len(checked) >= CASES, f"only {len(checked)} cases were checked, not {CASES}"

        counted.__name__, counted.__doc__ = test.__name__, test.__doc__
        counted.__module__ = test.__module__
        return counted

    return decorate
