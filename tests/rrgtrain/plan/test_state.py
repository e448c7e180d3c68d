"""The formula gives the memory that training holds, and the plan of every family is right."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from bench.gpu_step import LAYERS, TEXT, VISION, real_size
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.ranks import gathered, sharding
from rrgtrain.algorithms.base import loss_of
from rrgtrain.plan import (
    Sizes,
    StateBytes,
    Weight,
    elements,
    read_sizes,
    sizes_of,
    state_bytes,
    tiny_sizes,
)
from rrgtrain.schema import LoraSettings, PolicySettings
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from tests.rrgpolicy.model.common import CONFIG, REPORTS, tiny_directory, tiny_policy
from tests.rrgpolicy.model.families import SORTS, backbone, build
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


# Test that sizes read from a configuration are those of the model.
def shapes(model: torch.nn.Module) -> Counter:
    return Counter((tuple(p.shape), p.requires_grad) for p in model.parameters())


def planned(sizes: Sizes, **options: object) -> Counter:
    return Counter((w.shape, w.trained) for w in sizes.weights(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("frozen", [False, True])
def test_every_parameter_of_the_tiny_policy_is_listed(frozen: bool) -> None:
    sizes = sizes_of(PolicySettings(path=str(tiny_directory())))
    assert planned(sizes, freeze_vision=frozen) == shapes(tiny_policy(freeze_vision=frozen).model)
    built = PolicySettings(
        width=CONFIG.width,
        layers=CONFIG.layers,
        vision_layers=CONFIG.vision_layers,
        # fewer than asked for, where texts are few
        vocabulary=tiny_policy().embedding_shape[0],
    )
    assert tiny_sizes(built) == sizes, "nothing is built to know them"


def test_the_known_3b_is_the_model_of_its_shape() -> None:
    config = real_size(AutoConfig.from_pretrained(tiny_directory()), LAYERS)
    assert isinstance(config, Qwen2_5_VLConfig)
    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    sizes = sizes_of(PolicySettings(path="Qwen/Qwen2.5-VL-3B-Instruct"))
    assert planned(sizes) == shapes(model)
    assert elements(sizes.weights()) == 3_754_622_976, "as its model card counts"
    assert read_sizes(config) == sizes, "flat or nested"
    assert TEXT["hidden_size"] == VISION["out_hidden_size"]


RANK = 3


@lru_cache
def sizes_of_family(name: str) -> Sizes:
    return read_sizes(build(name, torch.float32).config)


def shapes_of_family(model: torch.nn.Module) -> Counter:
    return Counter(tuple(p.shape) for p in model.parameters())


def test_weights_by_part_are_those_of_the_model_that_is_built() -> None:
    wrong = {}
    for name in SORTS:
        model, sizes = build(name, torch.float32), sizes_of_family(name)
        of = backbone(model)
        layers = of.language_model.layers
        counted = {
            "layer": sum(p.numel() for p in layers.parameters()),
            "tower": sum(p.numel() for _, p in of.eyes()),
        }
        listed = {part: elements(sizes.listed, part) for part in counted}
        frozen = [w.trained for w in sizes.weights(freeze_vision=True) if w.part == "tower"]
        if (
            (listed, sizes.layers) != (counted, len(layers))
            or Counter(w.shape for w in sizes.listed) != shapes_of_family(model)
            or any(frozen)
            or bool(frozen) != SORTS[name].sees
        ):
            wrong[name] = listed, counted
    assert not wrong


def test_an_adapter_goes_on_the_modules_that_training_names() -> None:
    wrong = []
    for name in SORTS:
        model = build(name, torch.float32)
        before = shapes_of_family(model)
        targets = backbone(model).family.lora_targets(model)
        added = (
            shapes_of_family(get_peft_model(model, LoraConfig(r=RANK, target_modules=targets)))
            - before
        )
        planned = (w.shape for w in sizes_of_family(name).weights(lora=RANK) if w.part == "adapter")
        wrong += [name] if Counter(planned) != added else []
    assert not wrong
