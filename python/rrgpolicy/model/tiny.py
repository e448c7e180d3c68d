"""Build a Qwen2.5-VL of about a million parameters, for two CPU cores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen2VLImageProcessorPil,
)

from rrgclinical.common.errors import UserError
from rrgclinical.progress_bars import no_progress_bars
from rrgpolicy.settings import PolicySettings

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PATCH, MERGE = 14, 2
HEAD_WIDTH = 32

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def check_width(settings: PolicySettings) -> None:
    """Raise UserError for a width that its heads do not divide."""
    if settings.width % (2 * HEAD_WIDTH):
        raise UserError(f"policy.width={settings.width}; use a multiple of {2 * HEAD_WIDTH}")


def build_tiny(
    settings: PolicySettings, texts: Sequence[str], directory: str | Path, *, side: int = 112
) -> Path:
    """Writes a randomly initialised checkpoint that `load_policy` takes, and returns its path.

    Args:
        settings: sizes and the seed; the same seed and texts give the same files.
        texts: what the byte-level BPE learns from. Give reports and prompts alike: what is
            frequent in them costs few tokens.
        directory: made if needed.
        side: pixels of an image's side; one of 112 is 16 tokens.

    Raises:
        UserError: no text, or a width that is no multiple of 64.
    """
    if not any(text.strip() for text in texts):
        raise UserError("the tiny tokenizer has no text to learn from; give reports and prompts")
    directory = Path(directory)
    tokenizer = _train_tokenizer(settings.vocabulary, texts)
    vocabulary = tokenizer.get_vocab()
    ids = {token: vocabulary[token] for token in SPECIAL_TOKENS}
    pixels = side**2
    image_processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": pixels, "longest_edge": pixels}, patch_size=PATCH, merge_size=MERGE
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = Qwen2_5_VLForConditionalGeneration(model_config(settings, len(tokenizer), ids))
    model.generation_config = GenerationConfig(
        eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]], pad_token_id=ids["<|endoftext|>"]
    )
    with no_progress_bars():
        for part in (model, tokenizer, image_processor):
            part.save_pretrained(directory)
    return directory


def _train_tokenizer(vocabulary: int, texts: Sequence[str]) -> Qwen2Tokenizer:
    # Qwen's own splitting of text into words: loading the checkpoint sets it whatever was saved.
    qwen = Qwen2Tokenizer().backend_tokenizer
    bpe = Tokenizer(models.BPE())
    bpe.normalizer, bpe.pre_tokenizer = qwen.normalizer, qwen.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # What the template adds around every message is as frequent as the messages are.
    bpe.train_from_iterator((f"user\n{t}\nassistant\n" for t in texts), trainer)
    learned = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(pair) for pair in learned["merges"]],  # type: ignore[misc]
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def model_config(
    settings: PolicySettings, vocabulary: int, ids: dict[str, int]
) -> Qwen2_5_VLConfig:
    """Write the configuration for a tokenizer of that many entries, with its SPECIAL_TOKENS."""
    check_width(settings)
    heads = settings.width // HEAD_WIDTH
    half = HEAD_WIDTH // 2
    spatial = half * 3 // 8
    text = {
        "vocab_size": vocabulary,
        "hidden_size": settings.width,
        "intermediate_size": 2 * settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "max_position_embeddings": 4096,
        "use_sliding_window": False,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        # Qwen2.5-VL's shares of the rotary frequencies: 2/8 time, 3/8 height, 3/8 width.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [half - 2 * spatial, spatial, spatial],
        },
        "tie_word_embeddings": True,
        "initializer_range": settings.width**-0.5,
    }
    vision = {
        "depth": settings.vision_layers,
        "hidden_size": settings.width,
        "intermediate_size": 2 * settings.width,
        "num_heads": heads,
        "out_hidden_size": settings.width,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "window_size": 8 * PATCH,
        "fullatt_block_indexes": [settings.vision_layers - 1],
        "initializer_range": settings.width**-0.5,
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
