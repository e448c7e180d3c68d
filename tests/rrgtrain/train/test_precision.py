"""Masters in fp32 and computation in bf16: what is computed, what one step moves, what is kept."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.ranks import gathered, sharding
from rrgpolicy.rollout import checkpoint_tensors, whole_policy
from rrgtrain.algorithms import Group
from rrgtrain.algorithms.base import loss_of
from rrgtrain.algorithms.group import members
from rrgtrain.errors import UserError
from rrgtrain.schema import LoraSettings
from rrgtrain.state.store import load_checkpoint, write_checkpoint
from rrgtrain.train import save_policy
from rrgtrain.train.optim import OnShards, adamw, apply_step, clip_gradients, optimizer_of
from rrgtrain.train.reference import reference_of
from tests.rrgpolicy.model.common import tiny_directory, tiny_policy
from tests.rrgtrain.common import groups_of, recipe, rollout_logps
from tests.rrgtrain.train.loops import SAMPLED, backward, whole, whole_gradients, with_masters

BF16 = torch.bfloat16


def logps_of(policy: Policy, groups: list[Group]) -> torch.Tensor:
    everything = torch.ones(len(members(groups)))
    settings = recipe()
    loss = loss_of(settings.rl, settings.rollout)
    return rollout_logps(policy, None, groups, everything, loss, settings.rl).old


def step(policy: Policy, lr: float) -> None:
    apply_step(adamw(policy.model, lr, 0.01), clip_gradients(policy.model.parameters(), 1.0), lr)


def test_parameters_gradients_and_moments_are_fp32_and_the_computation_is_not() -> None:
    policy, plain = with_masters(), tiny_policy(dtype=BF16)
    assert policy.dtype == BF16 and sharding.is_sharded(policy)
    groups = groups_of(plain, SAMPLED, edited=False)
    assert torch.equal(logps_of(policy, groups), logps_of(plain, groups))
    optimizer = adamw(policy.model, 1e-6, 0.01)
    backward(policy, "rl.token_budget=1")
    trained = list(policy.model.parameters())
    assert {p.dtype for p in trained} == {p.grad.dtype for p in trained if p.grad is not None}
    apply_step(optimizer, clip_gradients(policy.model.parameters(), 1.0), 1e-6)
    moments = [v for s in optimizer.state.values() for n, v in s.items() if n != "step"]
    assert {t.dtype for t in (*trained, *moments)} == {torch.float32} and moments


def test_what_never_trains_stays_in_bf16_and_is_not_copied() -> None:
    frozen = with_masters(freeze_vision=True)
    tower = [p for p in frozen.visual.parameters()]
    assert {p.dtype for p in tower} == {BF16}
    assert not any(map(sharding._is_dtensor, tower))
    adapted = tiny_policy(dtype=BF16)
    add_lora(adapted, LoraSettings(rank=2, dropout=0.0), 0)
    sharding.setup("none", adapted)
    dtypes = {p.requires_grad: p.dtype for p in adapted.model.parameters()}
    assert dtypes == {True: torch.float32, False: BF16}
    assert all(sharding._is_dtensor(p) == p.requires_grad for p in adapted.model.parameters())


@pytest.mark.parametrize("placed", [True, False])
def test_gathered_weights_are_the_masters_in_bf16_and_leave_them(placed: bool) -> None:
    policy = tiny_policy(dtype=BF16, masters=True)
    if placed:
        sharding.setup("none", policy)
    before = whole(policy)
    for _ in range(2):
        gathered.drop(policy)
        copy = whole_policy(policy)
        tensors = checkpoint_tensors(copy)
        assert tensors.keys() == before.keys()
        for name, parameter in copy.model.named_parameters():
            assert parameter.dtype == BF16 and torch.equal(parameter, before[name].to(BF16))
            assert torch.equal(tensors[name], parameter), name
    after = whole(policy)
    assert all(torch.equal(after[n], v) and v.dtype == torch.float32 for n, v in before.items())


def test_the_reference_is_what_the_policy_computed_with() -> None:
    policy = tiny_policy(dtype=BF16, masters=True)
    reference = reference_of(policy)
    sharding.setup("none", policy, reference)
    assert {p.dtype for p in reference.model.parameters()} == {BF16}
    groups = groups_of(policy, SAMPLED, edited=False)
    before = logps_of(policy, groups)
    assert torch.equal(logps_of(reference, groups), before)
    backward(policy)
    step(policy, 1e-2)
    assert torch.equal(logps_of(reference, groups), before)
    assert not torch.equal(logps_of(policy, groups), before)


def test_a_checkpoint_holds_the_masters(tmp_path: Path) -> None:
    policy = with_masters()
    backward(policy)
    step(policy, 1e-6)
    save_policy(policy, tmp_path / "kept", {})
    again = load_policy(tmp_path / "kept", dtype=BF16, masters=True)
    kept = dict(again.model.named_parameters())
    for name, value in whole(policy).items():
        assert torch.equal(kept[name], value) and kept[name].dtype == torch.float32, name
    assert any(not torch.equal(v, v.to(BF16).float()) for v in kept.values())


def test_of_an_adapter_no_rank_gathers_the_base(tmp_path, monkeypatch):
    policy = tiny_policy(dtype=BF16)
    add_lora(policy, LoraSettings(rank=2), seed=0)
    sharding.setup("none", policy)
    assert sharding.is_sharded(policy)
    backward(policy)
    step(policy, 1e-2)
    module = importlib.import_module("rrgtrain.train.best")
    gather = Mock(wraps=sharding.full_state_dict)
    monkeypatch.setattr(module, "full_state_dict", gather)
    save_policy(policy, tmp_path / "kept", {})
    adapter = {n: w for n, w in whole(policy).items() if ".lora_" in n}
    gathered = {name for call in gather.call_args_list for name in call.args[0]}
    assert gathered == set(adapter) != set(whole(policy))
    kept = dict(load_policy(tmp_path / "kept", dtype=BF16, masters=True).model.named_parameters())
    for name, value in adapter.items():
        assert torch.equal(kept[name], value), name


class _Recorded(torch.optim.Optimizer):
    """In the place of bitsandbytes' AdamW8bit: SGD that looks at what it is given."""

    seen: list[torch.Tensor] = []  # noqa: RUF012

    def __init__(self, groups: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(groups, settings)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for part in group["params"]:
                if part.grad is not None:
                    self.seen.extend((part, part.grad))
                    part.sub_(part.grad * group["lr"])
                    self.state[part]["moment"] = part.grad.clone()


def test_eight_bits_are_given_this_ranks_fp32_part(monkeypatch, tmp_path):
    fake = ModuleType("bitsandbytes")
    fake.__spec__ = ModuleSpec("bitsandbytes", None)
    fake.optim = ModuleType("bitsandbytes.optim")  # type: ignore[attr-defined]
    fake.optim.AdamW8bit = _Recorded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bitsandbytes", fake)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", fake.optim)  # type: ignore[attr-defined]
    policy, rl = with_masters(), recipe("rl.optimizer=adamw_8bit").rl
    optimizer = optimizer_of(policy.model, rl)
    assert isinstance(optimizer, OnShards)
    _Recorded.seen.clear()
    before = whole(policy)
    backward(policy)
    gradients = whole_gradients(policy)
    apply_step(optimizer, clip_gradients(policy.model.parameters(), 0.0), 0.5)
    assert len(_Recorded.seen) == 2 * len(gradients)
    assert not any(map(sharding._is_dtensor, _Recorded.seen))
    assert {t.dtype for t in _Recorded.seen} == {torch.float32}
    after = whole(policy)
    for name, gradient in gradients.items():
        assert torch.equal(after[name], before[name] - gradient * 0.5), name
    assert all(p.grad is None for p in policy.model.parameters())
    write_checkpoint(tmp_path / "kept", {"optimizer": optimizer.state_dict()})
    again = optimizer_of(policy.model, rl)
    saved = load_checkpoint(tmp_path / "kept").state["optimizer"]
    sharding.load_optimizer(again, saved)
    moments = [s["moment"] for s in again.state_dict()["state"].values()]
    wanted = [s["moment"] for s in optimizer.state_dict()["state"].values()]
    assert moments and all(torch.equal(a, b) for a, b in zip(moments, wanted, strict=True))
    with pytest.raises(UserError, match="of this run are those of 2 processes, and these are 1"):
        again.load_state_dict({"ranks": [saved, saved]})


def test_a_dtype_that_the_gpu_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Tesla T4")
    with pytest.raises(UserError, match="policy.dtype=bfloat16, which Tesla T4 lacks; use") as told:
        load_policy(tiny_directory(), dtype=BF16, device="cuda")
    assert "\n" not in str(told.value)
    load_policy(tiny_directory(), dtype=BF16)
