"""Packed windows give the tower's own embeddings and gradients, in a call or a few a layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as Tower,
)

from rrgclinical.common.errors import UserError
from rrgpolicy.model import packed_windows
from rrgpolicy.model.attention import ATTENTION
from rrgpolicy.model.packed_windows import FLASH, PACKED_WINDOWS, stacked_windows
from tests.operators import Operators
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgpolicy.model.equality import gradients

# Patches: frames, height, width of each image; a window is 8 x 8.
GRIDS = {
    "one window": [(1, 8, 8)],
    "whole windows": [(1, 16, 24)],
    "right and lower remainders": [(1, 22, 26)],
    "less than a window": [(1, 2, 4)],
    "images of several sizes": [(1, 18, 10), (1, 8, 8), (1, 18, 10), (1, 4, 30)],
    "frames": [(3, 10, 6)],
}


def attention_kernels(operator: Any, *_: Any) -> list[str]:
    """The attention kernels that run forward."""
    name = str(operator)
    return [name] if "scaled_dot_product" in name and "backward" not in name else []


def tower(
    *, layers: int = 3, full: Sequence[int] = (1,), dtype: torch.dtype = torch.float32
) -> Any:
    config = Qwen2_5_VLVisionConfig(
        depth=layers,
        hidden_size=32,
        intermediate_size=48,
        num_heads=2,
        out_hidden_size=32,
        window_size=112,
        fullatt_block_indexes=list(full),
        initializer_range=0.2,
    )
    config._attn_implementation = "sdpa"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Tower(config).to(dtype).eval()


def run(model: Any, grids: Sequence[tuple[int, int, int]], attention: str) -> torch.Tensor:
    """Embeddings of random images, with the tower's attention set first."""
    model.config._attn_implementation = attention
    grid = torch.tensor(grids)
    pixels = torch.randn(
        int(grid.prod(1).sum()),
        3 * 2 * 14 * 14,
        generator=torch.Generator().manual_seed(1),
        dtype=torch.float32,
    )
    embeddings: torch.Tensor = model(pixels.to(model.dtype), grid_thw=grid).pooler_output
    return embeddings


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("images", GRIDS)
def test_values_and_gradients_are_those_of_one_call_a_window(images, checkpointing):
    model = tower()
    if checkpointing:
        # Renamed in transformers 5.23, as model/load.py has it.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
        model.train()
    wanted = run(model, GRIDS[images], "sdpa")
    wanted_gradients = gradients(model, wanted)
    with Operators(attention_kernels) as calls:
        packed = run(model, GRIDS[images], PACKED_WINDOWS)
        packed_gradients = gradients(model, packed)
    assert calls.noted, "no attention ran: the comparison would be of something else"
    torch.testing.assert_close(packed, wanted, rtol=0, atol=1e-6)
    assert (
        packed_gradients.keys() == wanted_gradients.keys() == dict(model.named_parameters()).keys()
    )
    for name, gradient in packed_gradients.items():
        scale = float(wanted_gradients[name].abs().max())
        torch.testing.assert_close(gradient, wanted_gradients[name], rtol=0, atol=1e-5 * scale)


def test_a_policy_has_it_in_the_tower_alone() -> None:
    policy = tiny_policy()
    assert policy.visual.config._attn_implementation == PACKED_WINDOWS
    assert policy.text_config._attn_implementation == ATTENTION
    assert tiny_policy(vision_attn="packed").visual.config._attn_implementation == PACKED_WINDOWS
    assert tiny_policy(vision_attn="sdpa").visual.config._attn_implementation == "sdpa"
    with pytest.raises(UserError, match="runs on a GPU only"):
        tiny_policy(vision_attn=FLASH)


def test_a_checkpoint_keeps_no_name_of_ours(tmp_path: Any) -> None:
    tiny_policy().save(tmp_path)
    assert PACKED_WINDOWS not in (tmp_path / "config.json").read_text()


def _one_by_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: list[int], scale: float
) -> torch.Tensor:
    """Attention within windows by its definition."""
    windows = []
    for first, end in pairwise(bounds):
        q, k, v = (part[first:end].transpose(0, 1) for part in (query, key, value))
        windows.append(((q @ k.mT * scale).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(windows)


@pytest.mark.parametrize("scale", [0.25, 0.4])
def test_torch_s_varlen_attention_is_told_the_bounds(monkeypatch, scale):
    """A stand-in of torch's signature and own scale plays the GPU."""
    asked: list[tuple[int, int]] = []

    def varlen(q: Any, k: Any, v: Any, ends_q: Any, ends_k: Any, most_q: int, most_k: int) -> Any:
        assert torch.equal(ends_q, ends_k) and ends_q.dtype == torch.int32
        asked.append((most_q, most_k))
        return _one_by_one(q, k, v, ends_q.tolist(), q.shape[-1] ** -0.5)

    monkeypatch.setattr(packed_windows, "_serves_varlen", lambda query: True)
    monkeypatch.setattr(packed_windows, "varlen_attn", varlen)
    generator = torch.Generator().manual_seed(2)
    query, key, value = torch.randn(3, 1, 2, 30, 16, generator=generator, dtype=torch.float64)
    bounds = [0, 12, 24, 30]
    out, _ = packed_windows._attention(
        torch.nn.Module(),
        query,
        key,
        value,
        cu_seq_lens_q=torch.tensor(bounds, dtype=torch.int32),
        max_length_q=12,
        scaling=scale,
    )
    flat = [part[0].transpose(0, 1) for part in (query, key, value)]
    torch.testing.assert_close(out[0], _one_by_one(*flat, bounds, scale))
    torch.testing.assert_close(out[0], stacked_windows(*flat, [12, 12, 6], scale))
    assert asked == [(12, 12)]


def test_torch_s_own_varlen_takes_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, strides and dtypes go through torch's op and its backward; nothing is computed."""
    monkeypatch.setattr(packed_windows, "_serves_varlen", lambda query: True)
    with FakeTensorMode():
        packed = torch.empty(100, 3, 16, 80, dtype=torch.bfloat16, requires_grad=True)
        query, key, value = (p.transpose(0, 1)[None] for p in packed.unbind(1))
        bounds = torch.empty(3, dtype=torch.int32)
        out, _ = packed_windows._attention(
            torch.nn.Module(),
            query,
            key,
            value,
            cu_seq_lens_q=bounds,
            max_length_q=64,
            scaling=80**-0.5,
        )
        assert out.shape == (1, 100, 16, 80) and out.dtype == torch.bfloat16
        out.sum().backward()
        assert packed.grad is not None and packed.grad.shape == packed.shape
