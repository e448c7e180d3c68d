"""Test that sizes read from a configuration are those of the model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
)

from bench.gpu_step import LAYERS, TEXT, VISION, real_size
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.lora import add_lora
from rrgtrain.errors import UserError
from rrgtrain.plan import (
    Sizes,
    elements,
    lora_rank,
    pixel_bounds,
    read_sizes,
    sizes_of,
    tiny_sizes,
)
from rrgtrain.schema import LoraSettings, PolicySettings
from tests.rrgpolicy.model.common import CONFIG, text_directory, tiny_directory, tiny_policy


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
        vocabulary=sizes.text.vocabulary,  # fewer than asked for, where texts are few
    )
    assert tiny_sizes(built) == sizes, "nothing is built to know them"


def test_those_of_a_model_of_text_and_of_an_adapter() -> None:
    sizes = sizes_of(PolicySettings(path=str(text_directory())))
    assert sizes.vision is None and planned(sizes) == shapes(load_policy(text_directory()).model)
    policy = tiny_policy()
    add_lora(policy, LoraSettings(rank=8), 0)
    own = sizes_of(PolicySettings(path=str(tiny_directory())))
    assert planned(own, lora=8) == shapes(policy.model)


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


def test_where_no_configuration_is(tmp_path: object) -> None:
    with pytest.raises(UserError, match="no such directory"):
        sizes_of(PolicySettings(path=f"{tmp_path}/nothing"))
    assert lora_rank(PolicySettings(path=f"{tmp_path}/nothing")) == 0


@pytest.mark.parametrize(
    ("stored", "bounds"),
    [
        ({"size": {"shortest_edge": 784, "longest_edge": 50176}}, (784, 50176)),
        # as Qwen published it, and with a bound of one's own beside what was saved
        ({"min_pixels": 3136, "max_pixels": 200704}, (3136, 200704)),
        (
            {"size": {"shortest_edge": 784, "longest_edge": 200704}, "max_pixels": 50176},
            (784, 50176),
        ),
    ],
)
def test_images_are_bounded_as_the_image_processor_reads_it(
    stored: dict[str, object], bounds: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stored))
    size = Qwen2VLImageProcessorPil.from_pretrained(tmp_path).size
    assert (size["shortest_edge"], size["longest_edge"]) == bounds
    assert pixel_bounds(PolicySettings(path=str(tmp_path))) == bounds
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{tmp_path}"}}')
    assert pixel_bounds(PolicySettings(path=str(adapter))) == bounds, "those of its base"
