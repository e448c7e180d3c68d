"""flash-attn is taken where it can run; asked for elsewhere, one line says why it cannot."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.packed_windows import FLASH, PACKED_WINDOWS, vision_attention
from tests.rrgpolicy.model.common import tiny_policy


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    real = importlib.util.find_spec
    found = ModuleSpec("flash_attn", None) if request.param else None
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: found if name == "flash_attn" else real(name, *more),
    )


@pytest.mark.parametrize("installed", [True], indirect=True)
def test_installed_it_is_taken_on_a_gpu_in_16_bits(installed: None) -> None:
    assert vision_attention("auto", "cuda", torch.bfloat16) == FLASH
    assert vision_attention("auto", "cuda:1", torch.float16) == FLASH
    assert vision_attention(FLASH, "cuda", torch.bfloat16) == FLASH
    assert vision_attention("auto", "cpu", torch.bfloat16) == PACKED_WINDOWS
    assert vision_attention("auto", "cuda", torch.float32) == PACKED_WINDOWS
    assert vision_attention("packed", "cuda", torch.bfloat16) == PACKED_WINDOWS
    assert vision_attention("sdpa", "cuda", torch.bfloat16) == "sdpa"
    with pytest.raises(UserError, match="runs on a GPU only, and the policy is on cpu"):
        vision_attention(FLASH, "cpu", torch.bfloat16)
    with pytest.raises(UserError, match="16 bits only, and the policy is float32"):
        vision_attention(FLASH, "cuda", torch.float32)


@pytest.mark.parametrize("installed", [False], indirect=True)
def test_without_the_package(installed: None) -> None:
    assert vision_attention("auto", "cuda", torch.bfloat16) == PACKED_WINDOWS
    with pytest.raises(UserError, match="needs the package flash-attn; pip install"):
        vision_attention(FLASH, "cuda", torch.bfloat16)


def test_a_word_it_does_not_know() -> None:
    with pytest.raises(UserError, match="use one of auto, packed, sdpa, flash_attention_2"):
        vision_attention("flash", "cuda", torch.bfloat16)


def test_the_tower_is_loaded_with_it() -> None:
    assert tiny_policy().visual.config._attn_implementation == PACKED_WINDOWS
    with pytest.raises(UserError, match="runs on a GPU only"):
        tiny_policy(vision_attn=FLASH)
