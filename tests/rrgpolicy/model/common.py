"""A tiny policy and studies for the tests of the policy and of the rollouts."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoTokenizer, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from rrgdata.study import ImageRef, Study
from rrgpolicy.model.load import Policy, load_policy
from rrgpolicy.model.prompt import EncodedPrompt, encode_prompt
from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.settings import PolicySettings

REPORTS = (
    "The heart is enlarged. There is a small left pleural effusion. No pneumothorax.",
    "Lungs are clear. No pleural effusion or pneumothorax. Heart size is normal.",
    "Mild interstitial edema. Support devices are unchanged.",
    "Right lower lobe consolidation, possibly pneumonia. No effusion.",
)
CONFIG = PolicySettings(width=64, layers=2, vision_layers=2, vocabulary=420, seed=3)


@lru_cache(maxsize=1)
def tiny_directory() -> Path:
    return build_tiny(CONFIG, REPORTS * 5, Path(mkdtemp(prefix="tiny-")))


# As Qwen2.5's own, it takes content that is a string and nothing else.
TEXT_TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# A template in our words, of the shape that some reasoning models publish: the beginning of an
# answer opens a block of reasoning unless `enable_thinking` is false, and a whole answer holds an
# empty one.
EMPTY = "<think>\n\n</think>\n\n"
OPENS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    f"{{% if m.role == 'assistant' %}}{EMPTY}{{% endif %}}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    f"{{% if enable_thinking is false %}}{EMPTY}{{% else %}}<think>\n{{% endif %}}{{% endif %}}"
)


@lru_cache(maxsize=1)
def text_directory() -> Path:
    """A Qwen2 of random weights as an ordinary checkpoint: a model of text alone, its head untied,
    with the tiny tokenizer."""
    directory = Path(mkdtemp(prefix="text-"))
    tokenizer = AutoTokenizer.from_pretrained(tiny_directory())
    tokenizer.chat_template = TEXT_TEMPLATE
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32 values: vLLM on a CPU has no smaller ones
        num_key_value_heads=1,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        initializer_range=0.1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]),
        pad_token_id=tokenizer.pad_token_id,
    )
    for part in (model, tokenizer):
        part.save_pretrained(directory)
    return directory


def tiny_policy(**options: object) -> Policy:
    """A fresh policy, its weights scaled up."""
    return _fresh(tiny_directory(), **options)


def text_policy(**options: object) -> Policy:
    """A fresh Qwen2, its weights scaled up."""
    return _fresh(text_directory(), **options)


def _fresh(directory: Path, **options: object) -> Policy:
    """Copy a policy that is loaded once a process: to load takes five times as long."""
    if options.get("unread"):  # what fills its weights is bound to it
        return _loaded.__wrapped__(directory, **options)
    return copy.deepcopy(_loaded(directory, **options))


@lru_cache(maxsize=16)
def _loaded(directory: Path, **options: object) -> Policy:
    with torch.random.fork_rng(devices=[]):
        policy = load_policy(directory, **options)  # type: ignore[arg-type]
    spread(policy.backbone)
    return policy


def spread(model: Any) -> Any:
    """At initialisation attention is nearly uniform, and a wrong mask would hardly show."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embed_tokens" not in name:
                weight.mul_(4.0)
    return model


def grow(policy: Policy, size: float, seed: int = 1, *, only: str = "") -> Policy:
    """What training adds to all that trains, or to what has `only` in its name."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if weight.requires_grad and only in name:
                weight.add_(size * torch.randn(weight.shape, generator=generator))
    return policy


def study(name: str, views: int, **sections: str) -> tuple[Study, list[Image.Image]]:
    """A study of random pictures; the third view is a prior frontal."""
    kinds = (("frontal", False), ("lateral", False), ("frontal", True))
    images = tuple(ImageRef(Path(f"{name}-{v}.png"), *kinds[v]) for v in range(views))
    rng = np.random.default_rng([len(name), views])
    # Two shapes: one whole window, and a wide picture of other rows than columns.
    shapes = ((112, 112), (84, 168), (112, 112))
    pictures = [
        Image.fromarray(rng.integers(0, 255, (*shapes[v], 3), dtype=np.uint8)) for v in range(views)
    ]
    return Study(name, "train", None, None, images, **sections), pictures


def prompt(policy: Policy, name: str, views: int, **sections: str) -> EncodedPrompt:
    return encode_prompt(policy, *study(name, views, **sections), style="short")


def prompts_of(policy: Policy) -> list[EncodedPrompt]:
    """Prompts of unequal length: one picture, none, three, two."""
    return [
        prompt(policy, "s" * (b + 1), views, indication="dyspnea" * b)
        for b, views in enumerate((1, 0, 3, 2))
    ]
