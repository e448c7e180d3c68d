"""Compaction: which rows are multiplied with the head, forward and backward, and at what price."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils.flop_counter import FlopCounterMode

from rrgkern import PolicyLoss, linear_policy_loss, linear_token_logps
from rrgkern.policy_loss.linear.rows import rows_with_gradient
from rrgkern.policy_loss.reference import METRICS
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear import cases

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
MODES = ("frozen_head", "grad_in_forward", "recompute")
PRODUCT = 2 * cases.WIDTH * cases.VOCABULARY
# The last sequence has no advantage.
DEAD = cases.LENGTHS[-1]
ROWS = sum(cases.LENGTHS)
LIVE = ROWS - DEAD


def flops(given, mode: str, **options) -> float:
    with FlopCounterMode(display=False) as counter:
        cases.ours(given, mode, frozen=mode == "frozen_head", **options)
    return counter.get_total_flops() / PRODUCT


@pytest.mark.parametrize(("mode", "products"), list(zip(MODES, (2, 3, 4), strict=True)))
def test_products_of_a_dense_batch(in_the_open, mode, products):
    given = cases.problem(PolicyLoss(beta=0.1), given="ref").to(torch.float32)
    assert flops(given, mode) == products * (LIVE + DEAD)


@pytest.mark.parametrize(("mode", "products"), list(zip(MODES, (2, 3, 4), strict=True)))
def test_rows_without_advantage_cost_nothing(in_the_open, mode, products):
    given = cases.problem(given="token_weight").to(torch.float32)
    assert flops(given, mode) == products * LIVE
    given.policy.token_weight[[0, 4]] = 0.0
    assert flops(given, mode) == products * (LIVE - 2)


@pytest.mark.parametrize(("mode", "products"), list(zip(MODES, (2, 3, 4), strict=True)))
def test_metrics_of_all_scored_rows_cost_their_forward_only(in_the_open, mode, products):
    given = cases.problem(PolicyLoss(surrogate="cispo"), given="old").to(torch.float32)
    assert flops(given, mode) == products * LIVE + DEAD
    assert flops(given, mode, metrics="computed") == products * LIVE


def test_clipped_rows_leave_the_recomputation(in_the_open):
    # Ratios far above the clip and positive advantages: no gradient, known only after the forward.
    given = cases.problem(given="old").to(torch.float32)
    given.policy.advantages.abs_()
    clipped = cases.LENGTHS[0]
    given.policy.old[:clipped] -= 3.0
    given.policy.old[clipped:] += 0.5
    assert flops(given, "recompute") == ROWS + 3 * (LIVE - clipped)


def test_one_live_token_keeps_a_tied_sequence():
    for spec, kept in ((PolicyLoss(), 1), (PolicyLoss(ratio_level="sequence"), cases.LENGTHS[0])):
        given = cases.problem(spec, given="old")
        weight = torch.zeros(ROWS, dtype=torch.float64, device=DEVICE)
        weight[1] = 1.0
        policy = given.policy._replace(token_weight=weight)
        assert int(rows_with_gradient(policy, ROWS).sum()) == kept
        mask = torch.ones(ROWS, dtype=torch.bool, device=DEVICE)
        mask[0] = False
        assert int(rows_with_gradient(policy._replace(mask=mask), ROWS).sum()) == max(1, kept - 1)


def test_metrics_of_computed_rows(torch_kernel):
    given = cases.problem(PolicyLoss(surrogate="cispo"), given="old mask")
    part = cases.ours(given, "recompute", metrics="computed")
    whole = cases.ours(given, "recompute")
    live = rows_with_gradient(given.policy, ROWS)
    assert part.metrics[METRICS.index("tokens")] == live.sum() < whole.metrics[-1]
    for name in ("loss", "hidden", "weight"):
        torch.testing.assert_close(getattr(part, name), getattr(whole, name), rtol=1e-12, atol=0)
    cases.check(part._replace(metrics=whole.metrics), given)


def test_the_entropy_is_reported_when_asked(torch_kernel):
    given = cases.problem(given="mask")
    expected = (
        linear_token_logps(
            *(given.hidden, given.weight, given.targets),
            temperature=given.temperature,
            entropy=True,
        )
        .entropy[given.policy.mask]
        .mean()
    )
    for mode in MODES:
        out = cases.ours(given, mode, frozen=mode == "frozen_head", entropy=True)
        torch.testing.assert_close(out.metrics[METRICS.index("entropy")], expected)
        cases.check(out, given, frozen=mode == "frozen_head")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", ["all masked", "S = 0", *more("N = 0", "no advantage")])
def test_nothing_to_learn(kernel, mode, batch):
    lengths = {"N = 0": (0, 0), "S = 0": ()}.get(batch, (3, 2))
    given = cases.problem(lengths=lengths, given="old mask", bias=True, dtype=torch.bfloat16)
    given = given.to(torch.bfloat16)
    if batch == "all masked":
        given.policy.mask.zero_()
    given.policy.advantages.zero_()
    out = cases.ours(given, mode, frozen=mode == "frozen_head")
    assert out.loss == 0
    for name in ("hidden", "weight", "bias"):
        gradient = getattr(out, name)
        assert gradient is None or (
            gradient.shape == getattr(given, name).shape and not gradient.any()
        )
    assert out.metrics[METRICS.index("tokens")] == given.policy.mask.sum()


@pytest.mark.parametrize("mode", ["grad_in_forward", "recompute"])
def test_an_entropy_bonus_without_a_scored_row(torch_kernel, mode):
    given = cases.problem(PolicyLoss(entropy_coef=0.1), lengths=(2,), given="mask")
    given.policy.mask.zero_()
    out = cases.ours(given, mode)
    assert out.loss == 0 and not out.hidden.any() and not out.weight.any()


def test_the_ratio_is_exactly_one_to_the_log_probabilities_of_the_same_policy(kernel):
    given = cases.problem(given="mask", dtype=torch.bfloat16).to(torch.bfloat16)
    mask = given.policy.mask
    old = torch.zeros(len(mask), device=mask.device)
    old[mask] = linear_token_logps(
        given.hidden[mask], given.weight, given.targets[mask], temperature=given.temperature
    ).logps
    metrics = linear_policy_loss(**cases.keywords(given, old=old, mode="recompute")).metrics
    assert metrics["ratio_mean"] == metrics["ratio_max"] == 1


# FSDP2's DTensor weights on a mesh of one process: gathered, gradients sent back, or refused.
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="a mesh of CPU processes")


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@on_cpu
@pytest.mark.parametrize("mode", ["frozen_head", "grad_in_forward", "recompute"])
def test_a_sharded_head_is_gathered(torch_kernel, mesh, mode):
    given, frozen = cases.problem(given="old mask", bias=True), mode == "frozen_head"
    expected = cases.ours(given, mode, frozen=frozen)
    arguments = cases.keywords(given, mode=mode, hidden=given.hidden.clone().requires_grad_())
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


@on_cpu
def test_log_probabilities_of_a_sharded_head(torch_kernel, mesh):
    given = cases.problem(given="old")
    sharded = distribute_tensor(given.weight, mesh, [Shard(0)]).requires_grad_()
    plain = given.weight.clone().requires_grad_()
    results = []
    for weight in (sharded, plain):
        logps = linear_token_logps(given.hidden, weight, given.targets).logps
        logps.sum().backward()
        results.append(logps.detach())
    assert torch.equal(*results) and torch.equal(sharded.grad.full_tensor(), plain.grad)


@on_cpu
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

    called = cases.keywords(cases.problem(given="old"), mode="grad_in_forward")
    del called["weight"]
    torch.manual_seed(0)
    plain = Model()
    wrapped = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    for _ in range(2):
        for model in (plain, wrapped):
            model(**called).backward()
    for a, b in zip(plain.parameters(), wrapped.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@on_cpu
def test_a_gradient_straight_into_a_sharded_weight_is_refused(mesh):
    given = cases.problem(given="old")
    weight = distribute_tensor(given.weight, mesh, [Shard(0)]).requires_grad_()
    with pytest.raises(ValueError, match="weight is a DTensor, whose gradient FSDP2 averages"):
        linear_policy_loss(**cases.keywords(given, weight=weight, accumulate_weight_grad=True))
