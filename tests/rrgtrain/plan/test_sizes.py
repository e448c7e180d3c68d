"""Test that sizes read from a configuration are those of the model."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import (
    AutoConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from bench.gpu_step import LAYERS, TEXT, VISION, real_size
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import add_lora
from rrgtrain.errors import UserError
from rrgtrain.plan import (
    Sizes,
    elements,
    lora_rank,
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
        # fewer than asked for, where texts are few
        vocabulary=tiny_policy().embedding_shape[0],
    )
    assert tiny_sizes(built) == sizes, "nothing is built to know them"


def test_those_of_a_model_of_text_and_of_an_adapter() -> None:
    sizes = sizes_of(PolicySettings(path=str(text_directory())))
    assert planned(sizes) == shapes(load_policy(text_directory()).model)
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
