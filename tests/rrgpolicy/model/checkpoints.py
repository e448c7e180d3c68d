"""Checkpoints of other families, tiny and random, with the tiny policy's tokenizer."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, GenerationConfig, Qwen2VLImageProcessorPil

from tests.rrgpolicy.model.common import TEXT_TEMPLATE, tiny_directory
from tests.rrgpolicy.model.families import SORTS, TEXT
from tests.rrgpolicy.model.sighted import cached


@cached
def checkpoint(name: str, **text: Any) -> Path:
    """Save a model of the list whose special ids are the tiny tokenizer's.

    text: sizes of its decoder other than the list's.
    """
    directory = Path(mkdtemp(prefix=f"{name}-"))
    tokenizer = AutoTokenizer.from_pretrained(tiny_directory())
    ids = {str(token): i for i, token in tokenizer.added_tokens_decoder.items()}
    sort = copy.deepcopy(SORTS[name])
    sizes = {**TEXT, **sort.text, **text, "vocab_size": len(tokenizer), "initializer_range": 0.1}
    ends = {"eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]}
    sizes |= ends
    if sort.vision is None:
        tokenizer.chat_template = TEXT_TEMPLATE
        config = getattr(transformers, sort.config)(**sizes)
    else:
        named = {
            "image_token_id": ids["<|image_pad|>"],
            "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids["<|vision_start|>"],
            "vision_end_token_id": ids["<|vision_end|>"],
        }
        config = getattr(transformers, sort.config)(
            text_config=sizes, vision_config=sort.vision, **named
        )
        area = 56 * 56
        Qwen2VLImageProcessorPil(
            size={"shortest_edge": area, "longest_edge": area},
            patch_size=sort.vision["patch_size"],
            merge_size=sort.vision["spatial_merge_size"],
        ).save_pretrained(directory)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = getattr(transformers, sort.model)(config)
    model.generation_config = GenerationConfig(**ends)
    for part in (model, tokenizer):
        part.save_pretrained(directory)
    return directory
