"""Test in one process the values and errors that ranks exchange."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from rrgclinical.common.stop import stopping
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import Pushed, VllmServerEngine
from rrgtrain.commands.started import starter
from rrgtrain.errors import RewardError, UserError
from tests.rrgpolicy.model.common import tiny_policy


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_shares_are_even_and_merge_to_the_whole(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_active", lambda: True)
    monkeypatch.setattr(ranks, "size", lambda: size)
    shares = []
    for rank in range(size):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        shares.append(ranks.shard(range(count)))
    lengths = [len(part) for part in shares]
    assert max(lengths) - min(lengths) <= 1 and lengths[0] == max(lengths)
    assert ranks.unshard(shares) == list(range(count))


def test_an_error_reaches_another_rank_as_what_it_is() -> None:
    try:
        raise RewardError("reward term facts failed: no answer")
    except RewardError as error:
        there = pickle.loads(ranks._portable(error) or b"")
    assert isinstance(there, RewardError) and str(there) == "reward term facts failed: no answer"
    assert "test_scale_ranks.py" in there.__notes__[0], "the traceback goes with it"


def test_an_error_that_cannot_travel_is_told_by_name() -> None:
    class Local(Exception):
        pass

    there = pickle.loads(ranks._portable(Local("here only")) or b"")
    assert type(there) is RuntimeError and str(there) == "Local: here only"


def test_alone_nothing_is_exchanged() -> None:
    assert ranks.size() == 1 and ranks.is_main()
    assert ranks.gather("x") == ["x"] and ranks.broadcast_from_main(3) == 3
    error = ValueError("one line")
    with pytest.raises(ValueError, match="one line") as caught, ranks.propagate_errors():
        raise error
    assert caught.value is error and ranks.agreed_with(error) is None


def test_the_way_to_go_on_names_processes_and_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert starter() == "rrgtrain"
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert starter() == "torchrun --nnodes 2 ... --nproc-per-node 8 -m rrgtrain"


def test_a_rank_that_follows_tells_a_server_that_went_away_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = VllmServerEngine.__new__(VllmServerEngine)
    engine._directory, engine._name = tmp_path, "vLLM"
    engine._sender, engine._adapter, engine._pushed = None, False, None
    posted: list[tuple[str, Any]] = []
    report = {"step": 4, "digest": "0a", "held": "0b"}

    def post(path: str, body: Any = None) -> Any:
        posted.append((path, body))
        return {"results": [report]}

    engine._patiently = post  # type: ignore[method-assign]
    monkeypatch.setattr(ranks, "is_main", lambda: False)
    monkeypatch.setattr(ranks, "broadcast_from_main", lambda _: Pushed(4, "0a", ("0b",)))
    assert engine.update(tiny_policy(), 4) == Pushed(4, "0a", ("0b",))
    engine._have_taken()
    assert posted == [] and not list(tmp_path.iterdir())
    engine._sent = False  # it does not answer any more
    engine._have_taken()
    assert posted[0][0] == "/collective_rpc"
    assert posted[0][1] == {
        "method": "take_weights",
        "kwargs": {"step": 4, "directory": str(tmp_path), "complete": False},
    }


def test_the_ranks_name_the_program_that_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any loop may use them: only within the trainer's command are they the trainer's."""
    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)

    def refused() -> str:
        with pytest.raises(UserError) as caught, ranks.opened("fsdp2", 1.0, cuda=False):
            pass
        return str(caught.value)

    assert "`torchrun --nproc-per-node N PROGRAM ...`" in refused()
    with stopping.installed("trainer"):
        assert "`torchrun --nproc-per-node N -m trainer ...`" in refused()
    assert "trainer" not in refused()
