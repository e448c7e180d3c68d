"""Build a Qwen2 of text alone, 5 to 6 million parameters, from random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoTokenizer, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from rrgclinical.common.files import atomic_directory
from rrgclinical.progress_bars import no_progress_bars
from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.settings import PolicySettings

HEAD_WIDTH = 32
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Size:
    """Sizes of the policy; with the defaults it has 5.2 million parameters."""

    width: int = 256
    layers: int = 6
    vocabulary: int = 2000
    seed: int = 0


def build_start(size: Size, texts: Sequence[str], directory: Path) -> Path:
    """Write a checkpoint of random weights whose tokenizer learned from `texts`.

    The same texts and size give the same files. The tokenizer is the tiny policy's.
    """
    with atomic_directory(directory) as partial:
        seen = PolicySettings(
            width=64, layers=1, vision_layers=1, vocabulary=size.vocabulary, seed=size.seed
        )
        tokenizer = AutoTokenizer.from_pretrained(build_tiny(seen, texts, partial / "tokenizer"))
        tokenizer.chat_template = TEMPLATE
        heads = size.width // HEAD_WIDTH
        config = Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=size.width,
            intermediate_size=3 * size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            initializer_range=size.width**-0.5,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(size.seed)
            model = Qwen2ForCausalLM(config)
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]),
            pad_token_id=tokenizer.pad_token_id,
        )
        with no_progress_bars():
            for part in (model, tokenizer):
                part.save_pretrained(partial)
    return directory
