"""An optimiser step reads the device once: a pretended one holds what comes of the weights."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rrgkern import PreferencePairs
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import build_algorithm
from rrgtrain.algorithms.group import Objective, Preference
from rrgtrain.errors import NotFinite
from rrgtrain.train import Batch, SamplerWatch
from rrgtrain.train.gradients import read_at_once
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.reference import reference_of
from rrgtrain.train.rl import update
from rrgtrain.train.sft import read_losses, sft_gradients
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import recipe, run_of, studies
from tests.rrgtrain.train.test_update_steps import batch, setting

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
    algorithm = build_algorithm(cfg)
    run = run_of(policy, PromptLoader(policy, "short"), [], cfg, algorithm=algorithm)
    run.reference, run.watch = (
        reference,
        SamplerWatch(policy, algorithm, cfg.rl, cfg.rollout.max_gap),
    )
    run.optimizer = adamw(policy.model, 1e-3, 0.0)
    whole = Batch.of(groups, objective, cfg.rl)
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


def test_every_way_to_the_host_counts() -> None:
    policy = tiny_policy()
    with pretended(policy) as device:
        weight = next(policy.model.parameters()).detach()
        number = weight.double().sum()
        for read in (float, bool, Tensor.item, Tensor.cpu, Tensor.tolist, Tensor.numpy):
            read(number)
        number.to("cpu").item()
        torch.zeros(()).item()
    assert len(device.reads) == 7


def test_what_is_read_is_exact_and_keeps_its_shape() -> None:
    tensors = [torch.tensor(0.1), torch.tensor([0.1, math.pi], dtype=torch.float64)]
    tensors.append(torch.full((2, 1), -0.3, dtype=torch.bfloat16, requires_grad=True))
    first, empty, last = read_at_once(tensors[:1], [], tensors[1:])
    assert empty == [] and read_at_once([], []) == [[], []]
    for got, wanted in zip((*first, *last), tensors, strict=True):
        assert got.shape == wanted.shape and torch.equal(got, wanted.detach().double())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_before_the_norm(value: float) -> None:
    losses, norm = [torch.tensor(1.0), torch.tensor(value)], torch.tensor(math.nan)
    with pytest.raises(NotFinite, match=f"the loss is {value} at step 3; lower sft.lr"):
        read_losses(losses, norm, 3)
