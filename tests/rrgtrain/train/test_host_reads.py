"""An optimiser step reads the device once, and takes head and policy loss in one where it can."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rrgkern import PreferencePairs
from rrgpolicy.model.policy import Policy, add_lora
from rrgtrain.algorithms import build_algorithm
from rrgtrain.algorithms.group import Group, Objective, Preference, token_offsets
from rrgtrain.errors import NotFinite
from rrgtrain.schema import LoraSettings
from rrgtrain.train import Batch, Gradients
from rrgtrain.train import gradients as gradients_module
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.reference import reference_of
from rrgtrain.train.rl import update
from rrgtrain.train.sft import read_losses, sft_gradients
from tests.rrgpolicy.model.common import grow, tiny_policy
from tests.rrgtrain.common import accumulate, gradients, recipe, rollout_logps, studies
from tests.rrgtrain.train.test_update_steps import batch, ready, setting

DOORS = ("policy_loss", "linear_policy_loss")
TO_HOST = {Tensor.cpu, Tensor.numpy, Tensor.tolist, Tensor.to}


class PretendedDevice(TorchDispatchMode):
    """The memory of the policy's weights, and of all that is computed from it, is a device's.

    A tensor is on the device by its storage. `reads` names what brought values to the host. Inputs
    that a step moves there, such as token ids, are not followed.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.reads: list[str] = []
        # kept alive, so that no other storage gets the address
        self.storages: dict[int, Any] = {}
        for parameter in policy.model.parameters():
            self.put(parameter)

    def put(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self.storages[storage._cdata] = storage

    def holds(self, *trees: Any) -> bool:
        """Tell whether a tensor among the arguments is on the device."""
        tensors = [x for x in tree_leaves(trees) if isinstance(x, Tensor)]
        return any(x.untyped_storage()._cdata in self.storages for x in tensors)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.holds(args, kwargs):
            if func is torch.ops.aten._local_scalar_dense.default:
                self.reads.append(str(func))
            for result in tree_leaves(out):
                if isinstance(result, Tensor):
                    self.put(result)
        return out


class Transfers(TorchFunctionMode):
    """Copies what is brought from a `PretendedDevice` to the CPU, which is a read of it."""

    def __init__(self, device: PretendedDevice) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        here = func in TO_HOST and self.device.holds(args[:1])
        if here and func is Tensor.to:
            # the policy's own device, a `torch.device`, is the pretended one
            here = any(x == "cpu" for x in tree_leaves((args[1:], kwargs)) if isinstance(x, str))
        if not here:
            return func(*args, **(kwargs or {}))
        self.device.reads.append(func.__name__)
        copy = func(*args, **(kwargs or {}))
        if isinstance(copy, Tensor):
            copy = copy.detach().clone()
            self.device.storages.pop(copy.untyped_storage()._cdata)
        return copy


@contextmanager
def pretended(policy: Policy) -> Any:
    device = PretendedDevice(policy)
    with device, Transfers(device):
        yield device


def reads_of(*overrides: str, oracle: bool = False) -> tuple[list[str], dict[str, float]]:
    """Return what an update of four groups, each a micro-batch, reads; and its row."""
    policy, cfg = tiny_policy(), setting("rl.token_budget=1", "rollout.max_gap=100", *overrides)
    reference = reference_of(policy, shares=False) if cfg.rl.beta > 0 else None
    groups, values = batch(policy)
    sampled = [
        tuple(replace(m, sampler_logps=torch.full((len(m.ids),), -6.0)) for m in g.members)
        for g in groups
    ]
    groups = [replace(g, members=own) for g, own in zip(groups, sampled, strict=True)]
    objective = Objective(values)
    if oracle:
        firsts = torch.tensor([0, *(len(own) for own in sampled)]).cumsum(0)[:-1]
        pairs = PreferencePairs(firsts, firsts + 1, torch.linspace(0.1, 0.4, len(firsts)))
        likelihood = torch.linspace(0.0, 0.1, len(values))
        objective = Objective(
            values, preference=Preference(pairs), likelihood=likelihood, logs_gradient_ratio=True
        )
    run, whole = ready(policy, cfg, reference), Batch.of(groups, objective, cfg.rl)
    with pretended(policy) as device:
        if reference is not None:
            for parameter in reference.model.parameters():
                device.put(parameter)
        row, _ = update(run, whole, 1e-3, (0, 1))
    assert {"loss", "grad_norm", "ratio_mean", "sampler/gap_mean"} <= row.keys()
    return device.reads, row


@pytest.mark.parametrize("overrides", [(), ("rl.beta=0.1",)])
def test_an_update_reads_the_device_once(overrides: tuple[str, ...]) -> None:
    assert reads_of(*overrides)[0] == ["cpu"]


def test_an_update_with_preference_and_measured_gradients_reads_the_device_once() -> None:
    reads, row = reads_of("rl.beta=0.1", oracle=True)
    assert reads == ["cpu"]
    assert {"oracle/gradient_ratio", "preference/loss", "kl"} <= row.keys()


def test_several_updates_read_once_each_and_the_old_log_probabilities_once() -> None:
    assert reads_of("rl.epochs=2", "rl.minibatch=2", "rl.beta=0.1")[0] == ["cpu"] * 5


def test_a_step_of_fine_tuning_reads_the_device_once() -> None:
    policy, chosen = tiny_policy(), studies(4)
    settings, prompts = replace(recipe().sft, token_budget=1), PromptLoader(policy, "short")
    encoded, optimizer = prompts.batch(chosen), adamw(policy.model, 1e-3, 0.0)
    with pretended(policy) as device:
        losses, _ = sft_gradients(policy, encoded, chosen, settings)
        loss, norm = read_losses(losses, clip_gradients(policy.model.parameters(), 1.0), 0)
        apply_step(optimizer, norm, 1e-3)
    assert len(losses) == 4 and loss == sum(map(float, losses))
    assert device.reads == ["cpu"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_before_the_norm(value: float) -> None:
    losses, norm = [torch.tensor(1.0), torch.tensor(value)], torch.tensor(math.nan)
    with pytest.raises(NotFinite, match=f"the loss is {value} at step 3; lower sft.lr"):
        read_losses(losses, norm, 3)


def adapted(dropout: float, dtype: torch.dtype = torch.float64) -> Policy:
    """A policy of which an adapter trains, that has learned something."""
    policy = tiny_policy(dtype=dtype)
    add_lora(policy, LoraSettings(rank=2, dropout=dropout), 0)
    grow(policy, 0.05, 0)
    policy.model.train()
    return policy


def doors_of(monkeypatch: pytest.MonkeyPatch) -> list[Mock]:
    """The two doors to the policy loss, which count their calls."""
    doors = {n: Mock(wraps=getattr(gradients_module, n)) for n in DOORS}
    for name, door in doors.items():
        monkeypatch.setattr(gradients_module, name, door)
    return [*doors.values()]


def sampled_elsewhere(groups: list[Group]) -> list[Group]:
    """The groups with the log-probabilities of an engine, of which the loss is corrected."""
    generator = torch.Generator().manual_seed(1)

    def of(member: Any) -> Any:
        if member.origin != "sampled":
            return member
        logps = -6.0 + torch.randn(len(member.ids), generator=generator)
        return replace(member, sampler_logps=logps, corrected=True)

    return [replace(g, members=tuple(map(of, g.members))) for g in groups]


CASES = {
    "plain": (),
    "micro-batches": ("rl.token_budget=1",),
    "KL": ("rl.beta=0.1",),
    "old log-probabilities": ("rl.beta=0.1", "rl.epochs=2"),
    "weights": (),
    "mask": ("rl.aggregation=bnpo",),
    "corrected": ("rl.epochs=2",),
}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("case", CASES)
def test_loss_gradients_and_metrics_are_equal(monkeypatch, case, dropout):
    policy, cfg, doors = adapted(dropout), setting(*CASES[case]), doors_of(monkeypatch)
    reference = reference_of(policy) if cfg.rl.beta else None
    groups, values = batch(policy)
    if case == "corrected":
        groups = sampled_elsewhere(groups)
    objective, tokens = Objective(values), int(token_offsets(groups)[-1])
    if case == "weights":
        objective = Objective(values, weight=torch.linspace(0, 2, tokens, dtype=torch.float64))
    if case == "mask":
        objective = Objective(values, mask=torch.arange(tokens) % 3 != 0)
    loss, fixed = build_algorithm(cfg).loss, None
    if cfg.rl.epochs > 1:
        fixed = rollout_logps(policy, reference, groups, objective, loss, cfg.rl)
        generator = torch.Generator().manual_seed(2)
        moved = 0.1 * torch.randn(tokens, generator=generator, dtype=torch.float64)
        fixed = replace(fixed, old=fixed.old + moved)  # type: ignore[operator]
    made: list[tuple[Gradients, dict[str, torch.Tensor]]] = []
    for read_logps in (True, False):
        torch.manual_seed(3)  # of dropout
        done = accumulate(
            *(policy, reference, groups, objective, loss, cfg.rl),
            fixed=fixed,
            read_logps=read_logps,
        )
        made.append((done, gradients(policy)))
    assert doors[0].call_count == doors[1].call_count >= 1
    (one, wanted), (two, got) = made
    assert one.computed and not two.computed and one.tokens == two.tokens
    assert two.metrics.keys() == one.metrics.keys() and ("kl" in one.metrics) == (cfg.rl.beta > 0)
    for name, value in one.metrics.items():
        assert two.metrics[name] == pytest.approx(value, rel=1e-10, abs=1e-12), name
    assert got.keys() == wanted.keys()
    largest = max(float(value.abs().max()) for value in wanted.values())
    assert largest > 0
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, rtol=0, atol=1e-9 * largest)


@pytest.mark.parametrize(
    ("dropout", "overrides", "calls"),
    [
        (0.1, (), (0, 1)),  # the gap to the sampler is measured on groups computed anew
        (0.0, (), (1, 0)),  # on the log-probabilities of the update
        (0.0, ("rl.epochs=3",), (1, 2)),  # on those of the first
        (None, ("rl.epochs=2",), (2, 0)),  # a head that trains
    ],
)
def test_an_update_takes_both_in_one_where_no_log_probability_is_read(
    monkeypatch: pytest.MonkeyPatch,
    dropout: float | None,
    overrides: tuple[str, ...],
    calls: tuple[int, int],
) -> None:
    policy = tiny_policy() if dropout is None else adapted(dropout, torch.float32)
    cfg = setting("rollout.max_gap=100", *overrides)
    groups, values = batch(policy)
    run, doors = ready(policy, cfg), doors_of(monkeypatch)
    whole = Batch.of(sampled_elsewhere(groups), values, cfg.rl)
    row, _ = update(run, whole, 1e-3, (0, 1))
    assert tuple(door.call_count for door in doors) == calls
    assert "sampler/gap_mean" in row


def test_what_else_reads_log_probabilities_keeps_them() -> None:
    policy, values = adapted(0.1), torch.zeros(2)
    pairs = PreferencePairs(torch.tensor([0]), torch.tensor([1]), torch.ones(1))
    alone = gradients_module.is_loss_of_frozen_head
    assert alone(policy, Objective(values))
    assert not alone(policy, Objective(values, preference=Preference(pairs)))
    assert not alone(policy, Objective(values, likelihood=torch.ones(2)))
    assert not alone(tiny_policy(), Objective(values))
