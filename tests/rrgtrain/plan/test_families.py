"""Test the plan of every family of the list: its weights, its adapter, its cache, its images."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import DynamicCache

from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.forward import hidden_states
from rrgtrain.cli import main
from rrgtrain.plan import (
    Mode,
    Packed,
    Setup,
    Sizes,
    elements,
    image_lengths,
    machine_of,
    plan_stage,
    read_sizes,
    stages,
)
from rrgtrain.schema import PolicySettings
from tests.rrgpolicy.model.checkpoints import checkpoint
from tests.rrgpolicy.model.families import SORTS, WINDOW, backbone, build, prompt
from tests.rrgpolicy.model.sighted import sighted
from tests.rrgtrain.common import recipe

RANK = 3
TOWER = ("patches", "block", "merger")


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
        parts = {
            "layer": of.language_model.layers.parameters(),
            "embedding": model.get_input_embeddings().parameters(),
            "head": [] if of.ties_head else model.get_output_embeddings().parameters(),
        }
        counted = {part: sum(p.numel() for p in own) for part, own in parts.items()}
        counted["eyes"] = sum(p.numel() for _, p in of.eyes())
        listed = {part: elements(sizes.listed, part) for part in parts}
        listed["eyes"] = elements(sizes.listed, *TOWER)
        frozen = [w.trained for w in sizes.weights(freeze_vision=True) if w.part in TOWER]
        if (
            listed != counted
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


def bytes_of(value: Any) -> int:
    """Bytes of the floating-point tensors in a layer of a cache."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() * value.is_floating_point()
    if isinstance(value, dict | list | tuple):
        return sum(map(bytes_of, value.values() if isinstance(value, dict) else value))
    return 0


def test_a_cache_is_as_large_as_transformers_makes_it() -> None:
    """Beyond windows and chunks, and with states of linear attention and convolutions."""
    wrong, kinds = {}, set()
    for name in SORTS:
        model, sizes = build(name, torch.float32), sizes_of_family(name)
        kinds |= {(layer.most < 99, layer.grows > 0) for layer in sizes.caches}
        for tokens in (WINDOW - 2, 4 * WINDOW):
            cache = DynamicCache(config=model.config.get_text_config())
            ids = torch.full((1, tokens), 5)
            with torch.no_grad():
                backbone(model).language_model(
                    input_ids=ids,
                    position_ids=torch.arange(tokens)[None],
                    past_key_values=cache,
                    use_cache=True,
                )
            real = sum(bytes_of(vars(layer)) for layer in cache.layers)
            if (planned := sizes.cache_bytes(tokens, 4)) != real:
                wrong[name, tokens] = planned, real
    assert not wrong
    assert kinds == {(True, True), (False, True), (False, False)}


def test_what_shares_by_a_cache_is_what_the_list_says() -> None:
    """The first way of the list is the one that the probe finds."""
    ways = {name: sizes_of_family(name).by_cache for name in SORTS}
    assert ways == {name: sort.ways[0] == "cache" for name, sort in SORTS.items()}


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
def test_a_plan_of_another_family_says_what_is_estimated(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"policy.path={checkpoint(name)}", "rl.beta=0"]
    assert main(["plan", "editgrpo", "--gpu", "h100", *words]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    marked = {row[0] for row in rows if row and row[-1] == "estimated"}
    assert marked == {"activations", "KV"}
    plan = plan_stage(Setup.of(recipe(*words), machine_of("h100")), "rl")
    assert plan.work.images and plan.work.step.embedded
    once = plan.device[0].bytes["start"]
    assert once == 4 * elements(Setup.of(recipe(*words), machine_of("h100")).sizes.listed)


def test_tokens_of_an_image_are_the_processors() -> None:
    """A square of 4 x 4 patches; 12 tiles and the whole; a view, and tiles with new lines."""
    for name, lengths in {"gemma3": (16, 4), "internvl": (13 * 16, 13 * 4)}.items():
        vision = sizes_of_family(name).vision
        assert vision is not None
        policy = PolicySettings(path=str(sighted(name)))
        assert image_lengths(policy, vision, (2544, 3056)) == lengths, name
    vision = sizes_of_family("llava_onevision").vision
    assert vision is not None
    policy = PolicySettings(path=str(sighted("llava_onevision")))
    assert image_lengths(policy, vision, (2544, 3056))[1] == 16 + 4 * 5


GROUPS, MEMBERS, LENGTH = 2, 6, 9


def taken_and_kept(of: Backbone, forward: Callable[[Backbone], Any]) -> tuple[int, int]:
    """Count the tokens that the first layer takes in a forward, and the bytes that autograd keeps.

    Storages are counted once; those of the weights are not among them.
    """
    taken, stores = [], {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        stores[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    layer = of.language_model.layers[0]
    handle = layer.register_forward_pre_hook(lambda _, args: taken.append(args[0].shape[:-1]))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        graph = forward(of)
    handle.remove()
    assert graph is not None  # until here it holds what it keeps
    weights = {p.untyped_storage().data_ptr() for p in of.model.parameters()}
    return sum(s.numel() for s in taken), sum(v for k, v in stores.items() if k not in weights)


@pytest.mark.parametrize(
    ("name", "ways"), [("qwen3_vl", ("row", "cache", "none")), ("qwen3_5", ("cache", "none"))]
)
def test_tokens_of_each_way_are_those_that_layers_take_and_bytes_have_its_order(
    name: str, ways: tuple[str, ...]
) -> None:
    """Beside the plan: what layers really take, and what autograd really keeps."""
    model, sizes = build(name, torch.float32), sizes_of_family(name)
    plain = backbone(model)
    prompts = [prompt(plain, name, 1, 60, seed) for seed in range(GROUPS)]
    members = [[torch.arange(3, 3 + LENGTH)] * MEMBERS for _ in prompts]
    images, embedded = prompts[0].images["pixel_values"], int((prompts[0].input_ids == 90).sum())
    packed = Packed(GROUPS, len(prompts[0].input_ids), MEMBERS, LENGTH, len(images), embedded)
    planned, kept = {}, {}
    for way in ways:
        shared = replace(plain, sharing=way)
        taken, kept[way] = taken_and_kept(shared, lambda b: hidden_states(b, prompts, members))
        assert taken == packed.by(way).tokens
        passed = stages(sizes, sizes.weights(), packed, Mode(sharing=way))
        planned[way] = sum(stage.kept for stage in passed)
    for larger, smaller in zip(ways[1:], ways, strict=False):
        strict = larger == "none"
        assert kept[larger] > kept[smaller] or not strict
        assert planned[larger] > planned[smaller] if strict else planned[larger] >= planned[smaller]
    if name == "qwen3_vl":  # linear attention keeps what its kernel would not
        ratios = {way: planned[way] / kept[way] for way in ways}
        assert all(0.5 < ratio < 2 for ratio in ratios.values()), ratios


def test_the_command_counts_the_way_that_the_recipe_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    activations, update, seconds = {}, {}, {}
    for way in ("row", "cache", "none"):
        for gpu in ("h100", "cpu"):
            words = [f"policy.path={checkpoint('qwen3_vl')}", f"policy.sharing={way}", "rl.beta=0"]
            words.append("rl.group=4")
            assert main(["plan", "editgrpo", "--gpu", gpu, "--json", *words]) == 0
            (plan,) = json.loads(capsys.readouterr().out)["stages"]
            (part,) = (part for part in plan["device"] if part["name"] == "activations")
            activations[gpu, way], update[way] = part["bytes"]["update"], plan["tokens"]["update"]
            seconds[gpu, way] = plan["seconds"]["update"]
            assert part["note"] == "estimated"
            assert plan["tokens"]["prompt"] + plan["tokens"]["reports"] == update["row"]
    for gpu in ("h100", "cpu"):
        none, cache, row = (activations[gpu, way] for way in ("none", "cache", "row"))
        assert none > cache >= row, gpu
    # a CPU has no measured rate
    assert seconds["h100", "none"] > 1.2 * seconds["h100", "row"], "forwards of four prompts"
    assert seconds["h100", "cache"] == seconds["h100", "row"]
    assert update["row"] == update["cache"]
    assert update["none"] == 4 * plan["tokens"]["prompt"] + plan["tokens"]["reports"]
    assert main(["plan", "editgrpo", *words]) == 0
    assert "each with its prompt" in capsys.readouterr().out.replace("\n  ", " ")
