"""FSDP2's DTensor weights on a mesh of one process: gathered, gradients sent back, or refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from rrgkern import linear_policy_loss, linear_token_logps
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear.cases import keywords, ours, problem

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="a mesh of CPU processes")


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("mode", ["frozen_head", "grad_in_forward", "recompute"])
def test_a_sharded_head_is_gathered(torch_kernel, mesh, mode):
    given, frozen = problem(given="old mask", bias=True), mode == "frozen_head"
    expected = ours(given, mode, frozen=frozen)
    arguments = keywords(given, mode=mode, hidden=given.hidden.clone().requires_grad_())
    sharded = {
        name: distribute_tensor(getattr(given, name), mesh, [Shard(0)]).requires_grad_(not frozen)
        for name in ("weight", "bias")
    }
    loss = linear_policy_loss(**arguments | sharded).loss
    loss.backward()
    assert torch.equal(loss, expected.loss)
    assert torch.equal(arguments["hidden"].grad, expected.hidden)
    for name, tensor in sharded.items():
        if frozen:
            assert tensor.grad is None
        else:
            assert isinstance(tensor.grad, DTensor) and tensor.grad.placements == (Shard(0),)
            assert torch.equal(tensor.grad.full_tensor(), getattr(expected, name))


def test_log_probabilities_of_a_sharded_head(torch_kernel, mesh):
    given = problem(given="old")
    sharded = distribute_tensor(given.weight, mesh, [Shard(0)]).requires_grad_()
    plain = given.weight.clone().requires_grad_()
    results = []
    for weight in (sharded, plain):
        logps = linear_token_logps(given.hidden, weight, given.targets).logps
        logps.sum().backward()
        results.append(logps.detach())
    assert torch.equal(*results) and torch.equal(sharded.grad.full_tensor(), plain.grad)


def test_fully_shard_leaves_its_parameters_usable(torch_kernel, mesh):
    from torch.distributed.fsdp import fully_shard

    given = problem(given="old")
    head = torch.nn.Linear(16, 200, bias=False, dtype=torch.float64)
    head.weight.data.copy_(given.weight)
    fully_shard(head, mesh=mesh)
    assert isinstance(head.weight, DTensor)
    expected = ours(given, "recompute")
    linear_policy_loss(**keywords(given, weight=head.weight, mode="recompute")).loss.backward()
    assert torch.equal(head.weight.grad.full_tensor(), expected.weight)


def test_under_ddp_the_hooks_fire(torch_kernel, mesh):
    # DDP refuses a forward after a backward in which a hook of its own did not fire.
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(16, 16, dtype=torch.float64)
            self.head = torch.nn.Linear(16, 200, bias=False, dtype=torch.float64)

        def forward(self, **called: Any) -> torch.Tensor:
            hidden = called.pop("hidden")
            weight = self.head.weight
            return linear_policy_loss(self.body(hidden), weight, **called).loss

    called = keywords(problem(given="old"), mode="grad_in_forward")
    del called["weight"]
    torch.manual_seed(0)
    plain = Model()
    wrapped = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    for _ in range(2):
        for model in (plain, wrapped):
            model(**called).backward()
    for a, b in zip(plain.parameters(), wrapped.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_gradient_straight_into_a_sharded_weight_is_refused(mesh):
    given = problem(given="old")
    weight = distribute_tensor(given.weight, mesh, [Shard(0)]).requires_grad_()
    with pytest.raises(ValueError, match="weight is a DTensor, whose gradient FSDP2 averages"):
        linear_policy_loss(**keywords(given, weight=weight, accumulate_weight_grad=True))


def test_sharded_rows_are_refused(mesh):
    given = problem(given="old")
    hidden = distribute_tensor(given.hidden, mesh, [Shard(0)])
    with pytest.raises(TypeError, match=r"hidden is a DTensor.*hidden.to_local\(\)"):
        linear_policy_loss(**keywords(given, hidden=hidden))
