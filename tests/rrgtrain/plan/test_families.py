"""Test the plan of every family of the list: its weights by part, and its adapter."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import torch
from peft import LoraConfig, get_peft_model

from rrgtrain.plan import Sizes, elements, read_sizes
from tests.rrgpolicy.model.families import SORTS, backbone, build

RANK = 3


@lru_cache
def sizes_of_family(name: str) -> Sizes:
    return read_sizes(build(name, torch.float32).config)


def shapes(model: torch.nn.Module) -> Counter:
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
            or Counter(w.shape for w in sizes.listed) != shapes(model)
            or any(frozen)
            or bool(frozen) != SORTS[name].sees
        ):
            wrong[name] = listed, counted
    assert not wrong


def test_an_adapter_goes_on_the_modules_that_training_names() -> None:
    wrong = []
    for name in SORTS:
        model = build(name, torch.float32)
        before = shapes(model)
        targets = backbone(model).family.lora_targets(model)
        added = shapes(get_peft_model(model, LoraConfig(r=RANK, target_modules=targets))) - before
        planned = (w.shape for w in sizes_of_family(name).weights(lora=RANK) if w.part == "adapter")
        wrong += [name] if Counter(planned) != added else []
    assert not wrong
