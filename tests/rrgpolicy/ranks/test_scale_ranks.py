"""Two ranks compute and exchange what one process has, in a loop of one's own too."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rrgclinical.common.stop import stopping
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import Pushed, VllmServerEngine
from rrgtrain.errors import RewardError, UserError
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgpolicy.ranks.own_loop_suite import ARRANGEMENTS, DRY, KINDS, policy_of, trained_of
from tests.rrgpolicy.ranks.rank_suite import CASES, FAMILIES, Found
from tests.rrgtrain.runs import on_ranks


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_shares_are_even_and_merge_to_the_whole(size, count, monkeypatch):
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


def test_a_rank_that_follows_tells_a_server_that_went_away_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = VllmServerEngine.__new__(VllmServerEngine)
    engine._directory, engine._name = tmp_path, "vLLM"
    sender: Any = SimpleNamespace(is_whole=lambda _: True, tensors=lambda _: ())
    engine._sender, engine._pushed = sender, None
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


Suites = dict[str, tuple[dict[str, Found], dict[str, Found]]]

VARIANTS = (
    *("bf16", "bf16, frozen tower", "LoRA in bf16"),
    *("checkpointing", "LoRA", "LoRA, head and loss in one", "frozen tower"),
)
TUNING = ("sft, whole", "sft, micro-batches", "sft, one study")
HUNG = 300.0
"""Seconds of the clock after which ranks that wait for each other are killed."""


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Suites:
    home = tmp_path_factory.mktemp("fsdp2")
    return computed_in(home, "families", "updates", "variants", "tuning")


def computed_in(home: Path, *names: str, patience: float = 600.0) -> Suites:
    out, main = home / "found", "tests.rrgpolicy.ranks.rank_suite"
    on_ranks("fsdp2", str(out), *names, cwd=home, main=main, patience=patience, statuses=[0, 0])
    return pickle.loads(out.read_bytes())


def compared(alone: Found, both: Found, tolerance: float) -> None:
    assert both.loss == pytest.approx(alone.loss, rel=tolerance, abs=tolerance)
    assert both.metrics.keys() == alone.metrics.keys()
    for name, value in alone.metrics.items():
        assert both.metrics[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name
    assert both.gradients.keys() == alone.gradients.keys()
    assert any(bool(value.any()) for value in alone.gradients.values())
    # the largest entry is the scale: what is near 0 is a difference of large numbers
    largest = max(float(value.abs().max()) for value in alone.gradients.values())
    for name, value in alone.gradients.items():
        assert float((both.gradients[name] - value).abs().max()) <= tolerance * largest, name


@pytest.mark.parametrize("case", CASES)
def test_an_update_on_two_ranks_is_that_of_one_process(suites: Suites, case: str) -> None:
    alone, both = suites["updates"]
    compared(alone[case], both[case], 1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_other_forms_of_training_too(suites: Suites, variant: str) -> None:
    alone, both = suites["variants"]
    # 2^-8 is half a unit in the last place of bf16, and gradients are rounded on every rank
    compared(alone[variant], both[variant], 2**-6 if "bf16" in variant else 1e-9)


def test_head_and_loss_in_one_are_both_one_after_the_other(suites: Suites) -> None:
    for found in suites["variants"]:
        compared(found["LoRA"], found["LoRA, head and loss in one"], 1e-9)


@pytest.mark.parametrize("tuned", TUNING)
def test_fine_tuning_ends_a_step_at_the_same_weights(suites: Suites, tuned: str) -> None:
    alone, both = suites["tuning"]
    compared(alone[tuned], both[tuned], 1e-9)


@pytest.mark.parametrize("way", FAMILIES)
@pytest.mark.parametrize("loop", ["rl", "sft"])
def test_other_families_share_prompts_on_two_ranks_as_in_one_process(suites, way, loop):
    alone, both = suites["families"]
    # linear attention computes in fp32 within
    compared(alone[f"{way}, {loop}"], both[f"{way}, {loop}"], 1e-4 if way == "a cache" else 1e-9)


def test_a_tower_that_trains_alone_keeps_ranks_without_images_in_step(tmp_path: Path) -> None:
    """In every way; the suite is alone, so that ranks that wait for ever are this test's."""
    alone, both = computed_in(tmp_path, "towers", patience=HUNG)["towers"]
    assert alone.keys() == both.keys()
    for name, computed in alone.items():
        # linear attention computes in fp32 within
        compared(computed, both[name], 1e-4 if "states" in name else 1e-9)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each rank has found."""
    home = tmp_path_factory.mktemp("own-loop")
    main = "tests.rrgpolicy.ranks.own_loop_suite"
    on_ranks(str(home / "out"), cwd=home, main=main, statuses=[0, 0])
    return [json.loads(Path(home / f"out-{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_probed_model_trains_as_without_shards(cells, arrangement: str, kind: str) -> None:
    start = torch.cat([p.detach().float().flatten() for p in trained_of(policy_of(kind))])
    ends = []
    for rank in cells:
        got, plain = rank[f"{arrangement}/{kind}"], rank[f"plain/{kind}"]
        assert got["losses"] == pytest.approx(plain["losses"], abs=1e-5 if kind == "fp32" else 5e-3)
        way = torch.tensor(plain["weights"]) - start
        gap = (torch.tensor(got["weights"]) - start - way).norm() / way.norm()
        assert way.abs().max() > 0.001 and gap < (1e-4 if kind == "fp32" else 0.1)
        ends.append(got["weights"])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_model_is_probed_before_it_is_sharded(cells, arrangement: str) -> None:
    for rank in cells:
        late, plain = rank[f"{arrangement}/late"], rank["plain/fp32"]
        if arrangement == "loss":  # its forward gathers the weights, and such can be probed
            assert late["losses"] == pytest.approx(plain["losses"], abs=1e-5)
        else:
            assert "probe_shared_prefix(model, prompts) once before fully_shard" in late["refused"]


@pytest.mark.parametrize("trap", DRY)
def test_a_dry_step_names_the_traps_of_ranks(cells, trap: str) -> None:
    assert [rank[f"dry/{trap}"] for rank in cells] == [DRY[trap]] * 2
