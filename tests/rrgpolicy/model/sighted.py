"""Tiny checkpoints of families: three that see in the files that the hub publishes, and others.

Models are those of `families.py`, of random weights under the hub's names, which `save_pretrained`
of transformers writes; what lies beside them is written as published, but for sizes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, pre_tokenizers
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
)

from rrgclinical.progress_bars import no_progress_bars
from tests.rrgpolicy.model.common import TEXT_TEMPLATE, tiny_directory
from tests.rrgpolicy.model.families import SORTS, TEXT
from tests.rrgpolicy.model.tokenizers_of_kinds import KINDS

_ROUND = {"<|endoftext|>": "pad_token", "<|im_start|>": "", "<|im_end|>": "eos_token"}
_GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
    "{% if m.content is string %}{{ m.content | trim }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}{{ '<start_of_image>' }}"
    "{% else %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_INTERN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}{{ '<IMG_CONTEXT>\n' }}{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# It takes lists of parts alone, and of a string it writes nothing.
_VISION = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' }}"
    "{% for part in m.content | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}"
    "{% endfor %}{% for part in m.content | selectattr('type', 'equalto', 'text') %}"
    "{{ '\n' + part.text }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MEANS = {
    "half": ([0.5] * 3, [0.5] * 3),
    "imagenet": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
}


@dataclass(frozen=True)
class Published:
    """What a family publishes beside its weights.

    tokens: special tokens and the role of each in the tokenizer, "" for none; config: names of
    config.json and the token each is of; template: where it lies is `file`.
    """

    kind: str
    tokens: dict[str, str]
    config: dict[str, str]
    template: str
    images: dict[str, Any]
    processor: dict[str, Any]
    file: str = "chat_template.jinja"
    ends: tuple[str, ...] = ("<|im_end|>",)
    named: dict[str, str] = field(default_factory=dict)


PUBLISHED = {
    "gemma3": Published(
        "gemma",
        {
            **{"<bos>": "bos_token", "<eos>": "eos_token", "<start_of_turn>": ""},
            **{"<end_of_turn>": "", "<end_of_image>": "", "<image_soft_token>": ""},
        },
        {
            **{"image_token_index": "<image_soft_token>", "boi_token_index": "<start_of_image>"},
            "eoi_token_index": "<end_of_image>",
        },
        _GEMMA,
        {
            **{"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 28, "width": 28}},
            **{"do_pan_and_scan": None, "resample": 2, "means": "half", "do_convert_rgb": None},
        },
        {"image_seq_length": 4, "processor_class": "Gemma3Processor"},
        ends=("<eos>", "<end_of_turn>"),
        named={
            **{"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
            "image_token": "<image_soft_token>",
        },
    ),
    "internvl": Published(
        "byte_level",
        {**_ROUND, "<img>": "", "</img>": "", "<IMG_CONTEXT>": "", "<video>": ""},
        {"image_token_id": "<IMG_CONTEXT>"},
        _INTERN,
        {
            **{"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": False},
            **{"size": {"height": 28, "width": 28}, "means": "imagenet", "resample": 3},
            **{"min_patches": 1, "max_patches": 12},
        },
        {"image_seq_length": 4, "processor_class": "InternVLProcessor"},
        named={
            **{"context_image_token": "<IMG_CONTEXT>", "start_image_token": "<img>"},
            **{"end_image_token": "</img>", "video_token": "<video>"},
        },
    ),
    "llava_onevision": Published(
        "byte_level",
        {**_ROUND, "<image>": "", "<video>": ""},
        {"image_token_index": "<image>", "video_token_index": "<video>"},
        _VISION,
        {
            **{"image_processor_type": "LlavaOnevisionImageProcessor", "means": "half"},
            **{"size": {"height": 28, "width": 28}, "resample": 3, "do_pad": True},
            "image_grid_pinpoints": SORTS["llava_onevision"].top["image_grid_pinpoints"],
        },
        {
            **{"processor_class": "LlavaOnevisionProcessor", "num_image_tokens": 16},
            **{"vision_feature_select_strategy": "full", "image_token": "<image>"},
            "video_token": "<video>",
        },
        file="chat_template.json",
    ),
}


def cached(make: Callable[..., Path]) -> Callable[..., Path]:
    """Make a checkpoint of a name and sizes once a process."""
    made: dict[str, Path] = {}

    def once(name: str, **text: Any) -> Path:
        key = f"{name} {text}"
        if key not in made:
            made[key] = make(name, **text)
        return made[key]

    return once


@cached
def sighted(name: str, **text: Any) -> Path:
    """Write the family's checkpoint once a process; it is not to be written to.

    text: sizes of its decoder other than the list's.
    """
    directory, published = Path(mkdtemp(prefix=f"{name}-")), PUBLISHED[name]
    tokenizer = _tokenizer(published)
    sort, id_of = copy.deepcopy(SORTS[name]), tokenizer.convert_tokens_to_ids
    ends = {
        "eos_token_id": [id_of(token) for token in published.ends],
        "pad_token_id": tokenizer.pad_token_id,
    }
    sizes = {**TEXT, **sort.text, **text}
    sizes |= {"vocab_size": len(tokenizer) + 3, "initializer_range": 0.1}
    top = {**sort.top, **{key: id_of(token) for key, token in published.config.items()}}
    config = getattr(transformers, sort.config)(
        text_config={**sizes, **ends}, vision_config=sort.vision, **top
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = getattr(transformers, sort.model)(config).bfloat16()
    model.generation_config = GenerationConfig(**ends, do_sample=True, top_k=64, top_p=0.95)
    with no_progress_bars():
        model.save_pretrained(directory)
    if name != "internvl":  # SigLIP's names have a level that a model made from nothing lacks
        file, level = directory / "model.safetensors", "vision_tower.vision_model."
        tensors = load_file(file).items()
        save_file(
            {k.replace("vision_tower.", level): t for k, t in tensors}, file, {"format": "pt"}
        )
    tokenizer.save_pretrained(directory)
    mean, deviation = _MEANS[published.images["means"]]
    images = {k: v for k, v in published.images.items() if k != "means"}
    images |= {"image_mean": mean, "image_std": deviation, "rescale_factor": 1 / 255}
    images |= dict.fromkeys(("do_normalize", "do_rescale", "do_resize"), True)
    images["processor_class"] = published.processor["processor_class"]
    template = published.template
    if published.file.endswith("json"):
        template = json.dumps({"chat_template": template})
        # as published beside it: the template of the language model, which takes no image
        tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        tokenizer.save_pretrained(directory)
    (directory / published.file).write_text(template)
    (directory / "preprocessor_config.json").write_text(json.dumps(images))
    (directory / "processor_config.json").write_text(json.dumps(published.processor))
    return directory


def _tokenizer(published: Published) -> Any:
    made = KINDS[published.kind]()
    special = [*published.tokens]
    if published.kind == "gemma":
        special.append("<start_of_image>")  # which its vocabulary has
        lines = ["\n" * count for count in range(1, 6)]  # as published, up to 31
        made.add_tokens([AddedToken(t, normalized=False) for t in lines])
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # as Qwen's
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    roles = {role: token for token, role in published.tokens.items() if role}
    roles.setdefault("pad_token", "<pad>")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, **roles, extra_special_tokens=published.named
    )


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
