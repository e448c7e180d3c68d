"""Tiny random models of many families, each with a maker of prompts as its processor writes them.

One list for every test of backbones. A family that transformers adds needs an entry here, and
nothing else where the probe finds a way of sharing for it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from packaging.version import Version
from torch import Tensor

from rrgpolicy.model.attention import use_rows
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.prompt import EncodedPrompt, placed

VOCABULARY, IMAGE, VIDEO, BEGIN, END = 99, 90, 91, 92, 93
TEXT_IDS = (3, 80)
WINDOW = 6

Inputs = dict[str, Tensor]

TEXT: dict[str, Any] = {
    **{"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 64},
    **{"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2},
    "max_position_embeddings": 4096,
}
TOWER: dict[str, Any] = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "image_size": 28, "patch_size": 7, "num_channels": 3},
    "initializer_range": 0.2,
}
GRID_TOWER: dict[str, Any] = {
    **{"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 7},
    **{"spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 64},
    "initializer_range": 0.2,
}
IDS = {"image_token_id": IMAGE, "video_token_id": VIDEO}
QWEN_IDS = {**IDS, "vision_start_token_id": BEGIN, "vision_end_token_id": END}
INDEX = {"image_token_index": IMAGE, "boi_token_index": BEGIN, "eoi_token_index": END}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
MROPE = {**PLAIN_ROPE, "mrope_section": [2, 3, 3]}


def _tokens(sizes: list[int], text: int, draw: torch.Generator) -> Tensor:
    """A row with images of these many tokens, each after two of text, and text behind them."""
    ids: list[int] = []
    for size in sizes:
        ids += torch.randint(*TEXT_IDS, (2,), generator=draw).tolist()
        ids += [BEGIN, *[IMAGE] * size, END]
    return torch.tensor([ids + torch.randint(*TEXT_IDS, (text,), generator=draw).tolist()])


def _noise(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


# images, text tokens, generator -> the forward's arguments
Layout = Callable[[int, int, torch.Generator], Inputs]


def text_alone(images: int, text: int, draw: torch.Generator) -> Inputs:
    return {"input_ids": _tokens([], text, draw)}


def grids(images: int, text: int, draw: torch.Generator) -> Inputs:
    """Qwen's and GLM's: patches in one list, and the grid of each image."""
    grid = torch.tensor([[1, 4, 4], [1, 2, 6], [1, 4, 2]])[:images]
    ids = _tokens([int(g.prod()) // 4 for g in grid], text, draw)
    found = {"input_ids": ids, "mm_token_type_ids": (ids == IMAGE).long()}
    if images:
        patches = _noise(draw, int(grid.prod(1).sum()), 3 * 2 * 49)
        found |= {"pixel_values": patches, "image_grid_thw": grid}
    return found


def squares(tokens: int, **options: bool) -> Layout:
    """Images of one size, [images, 3, 28, 28]."""

    def layout(images: int, text: int, draw: torch.Generator) -> Inputs:
        ids = _tokens([tokens] * images, text, draw)
        found = {"input_ids": ids}
        if options.get("types"):
            found["token_type_ids"] = (ids == IMAGE).long()
        if images:
            found["pixel_values"] = _noise(draw, images, 3, 28, 28)
            if options.get("sizes"):
                found["image_sizes"] = torch.tensor([[28, 28]] * images)
            if options.get("in_study"):
                found["pixel_values"] = found["pixel_values"][None]
        return found

    return layout


def any_resolution(together: bool) -> Layout:
    """LLaVA-NeXT's and OneVision's: a base view and one tile an image."""

    def layout(images: int, text: int, draw: torch.Generator) -> Inputs:
        size = 17 if together and images > 1 else 36
        found = {"input_ids": _tokens([size] * images, text, draw)}
        if images:
            found["pixel_values"] = _noise(draw, images, 2, 3, 28, 28)
            found["image_sizes"] = torch.tensor([[28, 28]] * images)
            if together:
                found["batch_num_images"] = torch.tensor([images])
        return found

    return layout


def patches(images: int, text: int, draw: torch.Generator) -> Inputs:
    """LFM2's: patches with a mask."""
    found = {"input_ids": _tokens([4] * images, text, draw)}
    if images:
        found |= {
            "pixel_values": _noise(draw, images, 16, 147),
            "spatial_shapes": torch.tensor([[4, 4]] * images),
            "pixel_attention_mask": torch.ones(images, 16, dtype=torch.int64),
        }
    return found


@dataclass(frozen=True)
class Sort:
    """config, model: names in transformers; ways: those that are exact, the probe's first one
    first; text, vision: what differs from TEXT and the tower's sizes; top: the rest."""

    config: str
    model: str
    layout: Layout = text_alone
    ways: tuple[str, ...] = ("row", "cache", "none")
    text: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] | None = None
    top: dict[str, Any] = field(default_factory=dict)

    @property
    def sees(self) -> bool:
        return self.vision is not None


_HALF = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": WINDOW}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def _vl(name: str, layout: Layout, **options: Any) -> Sort:
    return Sort(f"{name}Config", f"{name}ForConditionalGeneration", layout, **options)


def _qwen(name: str, **options: Any) -> Sort:
    return _vl(name, grids, top=QWEN_IDS, **options)


def _lm(name: str, **text: Any) -> Sort:
    return Sort(f"{name}Config", f"{name}ForCausalLM", text=text)


_ROPE3 = {**MROPE, "mrope_interleaved": True}
_SIGLIP = {**TOWER, "model_type": "siglip_vision_model"}
_CLIP = {**TOWER, "model_type": "clip_vision_model", "projection_dim": 32}
_PINS = [[28, 28], [28, 56], [56, 28]]
_STATE = ("cache", "none")
_PLACES = {**GRID_TOWER, "num_position_embeddings": 64}
_DEEP = {**_PLACES, "deepstack_visual_indexes": [0, 1]}
_WHOLE = {"rope_parameters": MROPE, "use_sliding_window": False}
_TILES = {"image_token_index": IMAGE, "image_grid_pinpoints": _PINS}

SORTS: dict[str, Sort] = {
    "qwen2_5_vl": _qwen(
        "Qwen2_5_VL",
        text=_WHOLE,
        vision={**GRID_TOWER, "window_size": 28, "fullatt_block_indexes": [1]},
    ),
    "qwen2_vl": _qwen(
        "Qwen2VL",
        text=_WHOLE,
        vision={
            **{"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
            **{"patch_size": 7, "spatial_merge_size": 2},
        },
    ),
    "qwen3_vl": _qwen("Qwen3VL", text={"rope_parameters": _ROPE3}, vision=_DEEP),
    "qwen3_vl_moe": _qwen(
        "Qwen3VLMoe",
        text={
            **{"rope_parameters": _ROPE3, "num_experts": 4, "num_experts_per_tok": 2},
            **{"moe_intermediate_size": 32, "decoder_sparse_step": 1},
        },
        vision=_DEEP,
    ),
    "qwen3_5": _qwen(
        "Qwen3_5",
        ways=_STATE,
        text={
            **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
            **{"linear_key_head_dim": 8, "linear_value_head_dim": 8},
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "rope_parameters": {**_ROPE3, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
        },
        vision=_PLACES,
    ),
    "glm4v": _vl(
        "Glm4v",
        grids,
        text={"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
        vision={k: v for k, v in GRID_TOWER.items() if not k.endswith("size")}
        | {"hidden_size": 32, "intermediate_size": 48, "patch_size": 7, "out_hidden_size": 64}
        | {"image_size": 28},
        top={**IDS, "image_start_token_id": BEGIN, "image_end_token_id": END},
    ),
    "gemma3": _vl(
        "Gemma3",
        squares(4, types=True),
        text={**_HALF, "query_pre_attn_scalar": 16},
        vision=TOWER,
        top={**INDEX, "mm_tokens_per_image": 4},
    ),
    "internvl": _vl(
        "InternVL",
        squares(4),
        text={"model_type": "qwen3"},
        vision={**TOWER, "image_size": [28, 28], "patch_size": [7, 7]},
        top={"image_token_id": IMAGE, "image_seq_length": 4, "downsample_ratio": 0.5},
    ),
    "llava": _vl(
        "Llava",
        squares(16),
        text={"model_type": "llama"},
        vision=_CLIP,
        top={"image_token_index": IMAGE, "image_seq_length": 16},
    ),
    "llava_next": _vl(
        "LlavaNext",
        any_resolution(together=False),
        text={"model_type": "mistral", "sliding_window": None},
        vision=_CLIP,
        top=_TILES,
    ),
    "llava_onevision": _vl(
        "LlavaOnevision",
        any_resolution(together=True),
        text={"model_type": "qwen2"},
        vision=_SIGLIP,
        top=_TILES,
    ),
    "mistral3": _vl(
        "Mistral3",
        squares(4, sizes=True),
        text={"model_type": "mistral", "sliding_window": None},
        vision={**TOWER, "model_type": "pixtral", "head_dim": 16, "rope_parameters": PLAIN_ROPE},
        top={"image_token_index": IMAGE, "spatial_merge_size": 2},
    ),
    **{
        name.lower(): _vl(
            name,
            squares(4, in_study=True),
            text={"model_type": "llama"},
            vision=TOWER,
            top={"image_token_id": IMAGE, "scale_factor": 2},
        )
        for name in ("Idefics3", "SmolVLM")
    },
    "llama4": _vl(
        "Llama4",
        squares(4),
        ways=_STATE,
        text={
            **{"attention_chunk_size": 2 * WINDOW, "interleave_moe_layer_step": 2},
            **{"num_local_experts": 4, "intermediate_size_mlp": 64, "no_rope_layer_interval": 2},
            **{"attn_temperature_tuning": True, "floor_scale": 8},
        },
        vision={
            **TOWER,
            **{"intermediate_size": 128, "vision_output_dim": 32, "projector_input_dim": 32},
            **{"projector_output_dim": 32, "pixel_shuffle_ratio": 0.5},
        },
        top=INDEX,
    ),
    "lfm2_vl": _vl(
        "Lfm2Vl",
        patches,
        ways=_STATE,
        text={"model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 2},
        vision={**TOWER, "model_type": "siglip2_vision_model", "num_patches": 16},
        top={"image_token_id": IMAGE, "projector_hidden_size": 32},
    ),
    "qwen2": _lm("Qwen2"),
    "qwen3": _lm("Qwen3"),
    "mistral": _lm("Mistral", sliding_window=WINDOW),
    "gemma2": _lm("Gemma2", sliding_window=WINDOW, query_pre_attn_scalar=16),
    "gpt_oss": _lm("GptOss", sliding_window=WINDOW, rope_parameters=PLAIN_ROPE, **_EXPERTS),
    "cohere2": _lm("Cohere2", sliding_window=WINDOW, logit_scale=0.25),
    "granite": _lm("Granite", logits_scaling=3.0),
}


def forwards(name: str, way: str = "none") -> bool:
    """Tell if the family's own forward runs in this transformers, and serves a way to share."""
    # Before 5.21 Qwen3.5 went on from a prefix cache otherwise; the probe sends it on.
    if (name, way) == ("qwen3_5", "cache"):
        return Version(transformers.__version__) >= Version("5.21")
    # Llama 4's asks its text model for `image_outputs`, which that has none of, and raises.
    return (name, transformers.__version__) != ("llama4", "5.24.0")


def build(name: str, dtype: torch.dtype = torch.float64, **text: Any) -> Any:
    """Build the family's model of random weights, in evaluation mode."""
    sort = copy.deepcopy(SORTS[name])  # a configuration changes what it is given
    sizes = {**TEXT, **sort.text, **text}
    if sort.vision is None:
        config = getattr(transformers, sort.config)(**sizes)
    else:
        parts = {"text_config": sizes, "vision_config": dict(sort.vision)}
        config = getattr(transformers, sort.config)(**parts, **sort.top)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, sort.model)(config).eval()
        # not `to`, which takes complex buffers along
        model = model.double() if dtype == torch.float64 else model.to(dtype)
        if any("expert" in name for name, _ in model.named_modules()):
            model.set_experts_implementation("eager")  # grouped products have no fp64
        with torch.no_grad():
            # norms of 1 and biases of 0 would hide a mistake
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    return model


def backbone(model: Any, device: str = "cpu", **options: Any) -> Backbone:
    """The model as the forwards take it, on the device where it is."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    use_rows(inner)
    return Backbone(model=model, device=torch.device(device), pad_id=0, **options)


def prompt(of: Backbone, name: str, images: int, text: int, seed: int = 0) -> EncodedPrompt:
    """A prompt of the family with so many images and so many tokens of text behind them."""
    draw = torch.Generator().manual_seed(seed)
    inputs = SORTS[name].layout(images, text, draw)
    return placed(of, inputs, key=f"{name}-{images}-{text}-{seed}")
