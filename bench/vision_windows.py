"""Time the vision tower, a call a window against packed windows, forward and backward.

Eight layers of Qwen2.5-VL's tower, the last over whole images: of its own width on a GPU, narrower
on a CPU. Rows of a CPU are ratios; of one thread (OMP_NUM_THREADS=1), of processor time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as Tower,
)

from bench.batch import DRY
from bench.harness import Agree, Bench
from rrgpolicy.model import PACKED_WINDOWS

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16 if CUDA else torch.float32
LAYERS, WIDTH, INNER = (8, 1280, 3420) if CUDA else (2 if DRY else 8, 160, 320)
HEADS = WIDTH // 80
# Images as patches (height, width) of 14 pixels: the demo's, 448 x 896, 644 x 644, and mixed sizes.
CASES = {
    "16 images of 112 x 112": [(8, 8)] * 16,
    "an image of 448 x 896": [(32, 64)],
    "an image of 644 x 644": [(46, 46)],
    "3 images of 3 sizes": [(46, 46), (36, 58), (30, 24)],
}
if DRY:
    CASES = {"2 images of 2 sizes": [(8, 8), (10, 12)]}

bench = Bench("vision_windows", baseline="one by one")


def tower() -> Any:
    config = Qwen2_5_VLVisionConfig(
        depth=LAYERS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_heads=HEADS,
        out_hidden_size=WIDTH,
        fullatt_block_indexes=[LAYERS - 1],
    )
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    return Tower(config).to(DEVICE, DTYPE).eval()


def with_attention(name: str) -> Callable[..., tuple[Tensor, ...]]:
    def run(pixels: Tensor, grid: Tensor, model: Any) -> tuple[Tensor, ...]:
        model.config._attn_implementation = name
        out = model(pixels, grid_thw=grid).pooler_output
        return out, *torch.autograd.grad(out.float().square().sum(), list(model.parameters()))

    return run


bench.provider("one by one")(with_attention("sdpa"))
bench.provider("packed")(with_attention(PACKED_WINDOWS))
bench.provider("flash-attn", needs="flash_attn", device="cuda")(with_attention("flash_attention_2"))


@pytest.mark.parametrize("case", CASES)
def test_tower(benchmark: Any, case: str) -> None:
    model = tower()
    grid = torch.tensor([(1, height, width) for height, width in CASES[case]])
    patches = int(grid.prod(1).sum())

    def make_inputs(seed: int) -> tuple[Tensor, Tensor, Any]:
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randn(patches, 3 * 2 * 14 * 14, generator=generator)
        return pixels.to(DEVICE, DTYPE), grid.to(DEVICE), model

    bench.compare(
        benchmark,
        make_inputs,
        shape={"patches": patches, "layers": LAYERS, "width": WIDTH, "heads": HEADS},
        dtype=DTYPE,
        case=f"{case}, forward+backward",
        rounds=20 if CUDA else 5,
        agree=Agree(1, 0.05 if CUDA else 1e-4),
    )
