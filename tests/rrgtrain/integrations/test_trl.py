"""SharedPrefix refuses a class in which no trainer would call it."""

from __future__ import annotations

import pytest

from rrgtrain.integrations.trl import SharedPrefix


class Trainer:
    def _get_per_token_logps_and_entropies(self) -> str:
        return "the trainer's own"


class Renamed:
    def _token_logps(self) -> None: ...


def test_it_stands_before_the_trainer() -> None:
    class Mine(SharedPrefix, Trainer): ...

    class Further(Mine): ...

    for kind in (Mine, Further):
        found = kind._get_per_token_logps_and_entropies
        assert found is SharedPrefix._get_per_token_logps_and_entropies


@pytest.mark.parametrize("bases", [(Trainer, SharedPrefix), (SharedPrefix, Renamed)])
def test_where_nothing_would_call_it_the_class_is_refused(bases: tuple[type, ...]) -> None:
    with pytest.raises(TypeError, match=r"nothing would call it; write class Mine\(SharedPrefix"):
        type("Mine", bases, {})
