"""The digest of pushed weights, and what a sampler that holds others is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy import vllm_worker
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout import (
    Pushed,
    RolloutEngine,
    SamplingRequest,
    VllmServerEngine,
    checkpoint_tensors,
    named_as_loaded,
    require_kept,
    require_taken,
)
from rrgpolicy.vllm_worker import Digest, digest_of
from tests.rrgpolicy.model.common import prompt, tiny_directory, tiny_policy
from tests.rrgpolicy.rollout.served import Served, Worker, in_process, over_http


def tensors() -> dict[str, torch.Tensor]:
    """Lengths that fill no word, one, and several chunks; views that begin in the middle of one."""
    drawn = torch.Generator().manual_seed(0)
    return {
        "short": torch.randn(3, generator=drawn).bfloat16(),
        "word": torch.randn(2, generator=drawn),
        "long": torch.randn(7, 13, generator=drawn).bfloat16()[:, 1:],
        "empty": torch.zeros(0, 4),
        "whole": torch.tensor(5, dtype=torch.int64),
    }


def test_a_digest_is_that_of_the_bits_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    given = tensors()
    value = digest_of(given.items())
    assert len(value) == 16 and int(value, 16) > 0
    assert digest_of(reversed(given.items())) == value
    assert digest_of((n, t.clone()) for n, t in given.items()) == value
    passing = Digest()
    assert [n for n, _ in passing.passing(given.items())] == list(given) and passing.value == value
    monkeypatch.setattr(vllm_worker, "CHUNK", 16)
    assert digest_of(given.items()) == value, "however it is cut"


def test_one_bit_of_any_tensor_changes_it() -> None:
    given = tensors()
    value = digest_of(given.items())
    others = set()
    for name, tensor in given.items():
        for place in range(tensor.numel() * tensor.element_size()):
            changed = tensor.clone().contiguous()
            changed.view(-1).view(torch.uint8)[place] ^= 1 << (place % 8)
            others.add(digest_of({**given, name: changed}.items()))
    assert len(others) == sum(t.numel() * t.element_size() for t in given.values())
    assert value not in others


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t | {"word": t["word"].flip(0)},
        lambda t: t | {"long": t["long"].reshape(12, 7)},
        lambda t: t | {"empty": torch.zeros(4, 0)},
        lambda t: t | {"short": t["short"].view(torch.int16)},
        lambda t: {("other" if n == "word" else n): v for n, v in t.items()},
        lambda t: {n: v for n, v in t.items() if n != "empty"},
        lambda t: t | {"long": t["long"].index_select(1, torch.arange(12).roll(4))},
    ],
    ids=["order", "shape", "empty", "dtype", "name", "missing", "words"],
)
def test_what_is_not_the_same_has_another_digest(change: Callable) -> None:
    assert digest_of(change(tensors()).items()) != digest_of(tensors().items())


class Frozen(Worker):
    """It reads what it is given and keeps what it has, from its second push on."""

    pushes = 0

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.pushes += 1
        super().reload_weights(weights_iterator if self.pushes == 1 else ())
        list(weights_iterator)


class NoAdapters(Worker):
    """Layers with an adapter never reach it."""

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        super().reload_weights((n, t) for n, t in weights_iterator if "_proj" not in n)


class Impatient(Worker):
    """It stops reading in the middle."""

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        tensors = iter(weights_iterator)
        super().reload_weights(next(tensors) for _ in range(5))


def trained(policy: Policy) -> None:
    with torch.no_grad():
        policy.language_model.layers[0].mlp.up_proj.weight.mul_(1.01)


@pytest.mark.parametrize("engine_of", [in_process, over_http])
@pytest.mark.parametrize("worker", [Frozen, NoAdapters])
def test_weights_that_stay_behind_stop_the_push(engine_of, worker, tmp_path, monkeypatch):
    policy = tiny_policy()
    engine: RolloutEngine
    with engine_of(policy, tmp_path, monkeypatch, worker) as engine:
        pushed = engine.update(policy, 3)
        assert pushed is not None
        assert pushed.step == 3
        sent = {n: t for n, t in checkpoint_tensors(policy).items() if "visual" not in n}
        assert pushed.digest == digest_of([*named_as_loaded(policy, sent).items()])
        engine.update(policy, 4)  # the same weights: nothing had to change
        trained(policy)
        with pytest.raises(UserError, match="weights of step 5 and computes with those of step 4"):
            engine.update(policy, 5)


@pytest.mark.parametrize("engine_of", [in_process, over_http])
def test_a_push_that_arrives_in_part_stops(engine_of, tmp_path, monkeypatch):
    with (
        engine_of(tiny_policy(), tmp_path, monkeypatch, Impatient) as engine,
        pytest.raises(
            UserError, match=r"has weights of step 3 \(digest .*\), pushed were those of"
        ),
    ):
        engine.update(tiny_policy(), 3)


def test_a_server_of_two_runs_stops_the_one_whose_weights_are_gone(tmp_path: Path) -> None:
    policy, other = tiny_policy(), load_policy(tiny_directory())
    request = SamplingRequest([prompt(policy, "s", 1)], group=1, max_new_tokens=2, seeds=[[1]])
    with Served(tiny_directory()) as served:
        one = VllmServerEngine(served.url, tmp_path / "a")
        two = VllmServerEngine(served.url, tmp_path / "b")
        one.update(policy, 7)
        one.generate(policy, request)
        two.update(other, 2)
        with pytest.raises(UserError, match="has weights of step 2 .* those of step 7 .* its own"):
            one.generate(policy, request)
        one.update(policy, 8)
        assert served.worker is not None
        trained(served.worker.policy)  # something else writes to them
        with pytest.raises(UserError, match="have changed while it sampled for step 8"):
            one.generate(policy, request)


def test_a_server_without_the_extension_is_refused_at_once(tmp_path: Path) -> None:
    served = Served(tiny_directory())
    served.workers = None
    with served, pytest.raises(UserError, match="do not say which .* --worker-extension-cls rrg"):
        VllmServerEngine(served.url, tmp_path, wait=60.0)


def test_weights_that_kernels_keep_packed_are_not_compared() -> None:
    policy = tiny_policy()
    worker = Worker(policy)
    named = named_as_loaded(policy, checkpoint_tensors(policy))
    report = worker.take_weights(1, tensors=list(named.items()))
    assert report["held"] == digest_of(policy.backbone.named_parameters())
    layer = policy.language_model.layers[0].mlp.up_proj
    layer.weight = torch.nn.Parameter(torch.empty(0))
    packed = worker.weights_taken()
    assert packed == {**report, "held": None}
    taken = require_taken(Pushed(1, report["digest"]), [packed], None, "it")
    later = {**packed, "step": 2, "digest": "other"}
    assert require_taken(Pushed(2, "other"), [later], taken, "it").held == (None,)
    require_kept(taken, [packed], "it")
    with pytest.raises(UserError, match="does not report which weights"):
        require_kept(taken, [], "it")
