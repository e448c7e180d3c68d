"""Test that the formula gives the memory that training holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.ranks import gathered, sharding
from rrgtrain.algorithms.base import loss_of
from rrgtrain.plan import StateBytes, Weight, state_bytes
from rrgtrain.schema import LoraSettings
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from tests.rrgpolicy.model.common import REPORTS, tiny_directory, tiny_policy
from tests.rrgtrain.common import accumulate, groups_of, recipe


def state_of(policy: Policy, ranks: int = 1, optimizer: str = "adamw") -> StateBytes:
    """The formula for the parameters of a policy."""
    weights = [
        Weight("layer", tuple(p.shape), p.requires_grad, p.element_size())
        for p in policy.model.parameters()
    ]
    return state_bytes(weights, compute=policy.dtype.itemsize, ranks=ranks, optimizer=optimizer)


def live() -> int:
    """Bytes of all storages that a plain tensor of this process holds.

    Subclasses are left out: a DTensor's part is a plain one, and what a compiler has left behind
    (FakeTensor) has no storage to read.
    """
    gc.collect()
    sizes = {}
    for found in gc.get_objects():
        if type(found) in (torch.Tensor, torch.nn.Parameter):
            storage = found.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


@pytest.fixture
def _looks_at_new_objects_alone() -> Iterator[None]:
    """Spare the collector what was there before: in a whole suite it is millions of objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_looks_at_new_objects_alone")
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": torch.bfloat16, "masters": True},
        {"dtype": torch.bfloat16, "masters": True, "freeze_vision": True},
        {"dtype": torch.float32, "masters": True},
        {"dtype": torch.bfloat16, "lora": True},
    ],
    ids=str,
)
def test_what_is_held_is_what_the_formula_says(options: dict) -> None:
    adapter = options.get("lora", False)
    options = {name: value for name, value in options.items() if name != "lora"}
    groups = groups_of(tiny_policy(), [REPORTS[:2]] * 2, edited=False)
    cfg, advantages = recipe(), torch.tensor([-1.0, 1.0] * 2)
    before = live()
    policy = load_policy(tiny_directory(), **options)
    if adapter:
        add_lora(policy, LoraSettings(rank=32, dropout=0.0), 0)
    wanted = state_of(policy)
    training = wanted.weights + wanted.gradients + wanted.moments
    sharding.setup("none", policy)
    optimizer = adamw(policy.model, 1e-3, 0.0)

    def gradients() -> None:
        accumulate(policy, None, groups, advantages, loss_of(cfg.rl, cfg.rollout), cfg.rl)

    gradients()
    apply_step(optimizer, clip_gradients(policy.model.parameters(), 1.0), 1e-3)
    gradients()
    # the collector knows a plain tensor from when Python has asked for it
    held = [parameter.grad for parameter in policy.model.parameters()]
    assert live() - before == pytest.approx(training, rel=0.1)
    del held
    apply_step(optimizer, clip_gradients(policy.model.parameters(), 1.0), 1e-3)
    gathered.gathered(policy)
    sampling = wanted.weights + wanted.moments + wanted.gathered
    assert live() - before == pytest.approx(sampling, rel=0.1)


def test_by_hand() -> None:
    policy = tiny_policy(dtype=torch.bfloat16, masters=True, freeze_vision=True)
    trained = sum(p.numel() for p in policy.model.parameters() if p.requires_grad)
    frozen = sum(p.numel() for p in policy.visual.parameters())
    alone = state_of(policy)
    assert alone.weights == 4 * trained + 2 * frozen
    assert (alone.gradients, alone.moments, alone.gathered) == (
        4 * trained,
        8 * trained,
        2 * trained,
    )
    two = state_of(policy, ranks=2)
    assert two.gathered == 2 * (trained + frozen)
    halves, whole = (s.weights + s.gradients + s.moments for s in (two, alone))
    assert 0 <= 2 * halves - whole < 0.01 * whole
    large = sum(
        p.numel() for p in policy.model.parameters() if p.requires_grad and p.numel() > 4095
    )
    eight = state_of(policy, optimizer="adamw_8bit")
    # a byte and its share of a block's scale each; what is small stays in fp32
    assert eight.moments == pytest.approx(
        2 * large * (1 + 4 / 256) + 8 * (trained - large), rel=1e-3
    )
