"""A tiny trainer of TRL, or ours, on two studies, whose sampler can be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rrgdata.study import ImageRef, Study
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import prompt_text
from rrgpolicy.model.tiny import build_tiny
from rrgpolicy.settings import PolicySettings
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe

REFERENCES = [
    "Small left pleural effusion. The heart is enlarged.",
    "No pneumothorax. Edema is present.",
]
SAMPLED = [
    "Small right pleural effusion. Pneumothorax.",
    "The heart is enlarged. No edema.",
    "Edema is present. Small left pleural effusion.",
    "No pneumothorax. The heart is enlarged. Pneumonia.",
    "Pneumothorax is present.",
    "Edema is present. No pneumothorax.",
]
GROUP, LENGTH = 6, 48
ALL = "editgrpo+ditpo+orapo"


def recipe(*more: str) -> Recipe:
    base = [f"rl.algorithm={ALL}", f"rl.group={GROUP}", "rl.beta=0.02", "token_weights.kind=tfidf"]
    base += ["reward.terms={label_f1: 1.0}", f"rl.max_new_tokens={LENGTH}", "rl.std=none"]
    return load_config(Recipe, None, [*base, "rl.aggregation=dr_grpo", *more])


def pictures() -> list[Image.Image]:
    drawn = np.random.default_rng(0).integers(0, 255, (2, 56, 56, 3), dtype=np.uint8)
    return [Image.fromarray(picture) for picture in drawn]


def studies() -> list[Study]:
    view = (ImageRef(Path("frontal.png"), "frontal"),)
    return [Study(f"s{b}", "train", REFERENCES[b], None, view) for b in range(2)]


def tiny_checkpoint(directory: Path) -> Path:
    texts = [prompt_text(studies()[0], style="short"), *REFERENCES, *SAMPLED] * 3
    return build_tiny(PolicySettings(), texts, directory, side=56)


def wakened(model: torch.nn.Module) -> None:
    """At initialisation attention is nearly uniform, and a wrong mask would hardly show."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embed_tokens" not in name:
                weight.mul_(2.0)


def qwen2_5_vl(place: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import (
        AutoTokenizer,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessorPil,
        Qwen2VLVideoProcessor,
    )

    tokenizer = AutoTokenizer.from_pretrained(place)
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessorPil.from_pretrained(place),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(),
        chat_template=tokenizer.chat_template,
    )
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        place, dtype=dtype, attn_implementation="sdpa"
    )
    return model, processor


def gemma3(place: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import (
        AutoConfig,
        AutoTokenizer,
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        Gemma3ImageProcessor,
        Gemma3Processor,
    )

    named = {"boi_token": "<|vision_start|>", "eoi_token": "<|vision_end|>"}
    named["image_token"] = "<|image_pad|>"
    tokenizer = AutoTokenizer.from_pretrained(place, extra_special_tokens=named)
    like = AutoConfig.from_pretrained(place)
    of_ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in named.items()}
    text = sizes(4) | {"vocab_size": like.get_text_config().vocab_size, "head_dim": 8}
    text |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 24}
    # Gemma's own ends are ids of plain text here
    text |= {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Gemma3Config(
        text_config=text | HEADS | {"query_pre_attn_scalar": 8},
        vision_config=sizes(2) | {"image_size": 28, "patch_size": 7, "num_attention_heads": 2},
        mm_tokens_per_image=4,
        image_token_index=of_ids["image_token"],
        boi_token_index=of_ids["boi_token"],
        eoi_token_index=of_ids["eoi_token"],
    )
    processor = Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
        image_seq_length=4,
    )
    return Gemma3ForConditionalGeneration(config).to(dtype), processor


HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}"
    "{% if c.type == 'image' %}<|vision_start|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def sizes(layers: int) -> dict[str, int]:
    return {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "depth": layers,
    }


def trainer_of(
    kind: Any,
    place: Path,
    out: Path,
    dtype: torch.dtype = torch.float64,
    build: Callable[[Path, torch.dtype], tuple[Any, Any]] = qwen2_5_vl,
    **more: Any,
) -> Any:
    """A trainer of two studies, whose sampler gives the fixed reports."""
    from datasets import Dataset
    from trl import GRPOConfig

    model, processor = build(place, dtype)
    turn = [{"role": "user", "content": prompt_text(studies()[0], style="short")}]
    data = Dataset.from_list(
        [
            {"prompt": turn, "image": image, "report": text, "id": f"s{b}"}
            for b, (image, text) in enumerate(zip(pictures(), REFERENCES, strict=True))
        ]
    )
    arguments: dict[str, Any] = {
        "output_dir": str(out),
        "per_device_train_batch_size": 2 * GROUP,
        "num_generations": GROUP,
        "max_completion_length": LENGTH,
        "temperature": 1.0,
        "beta": 0.02,
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "use_bias_correction_kl": False,
        "learning_rate": 1e-2,
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "shuffle_dataset": False,
        "disable_tqdm": True,
        "max_steps": 2,
        "save_strategy": "no",
        "logging_steps": 1,
    }
    made = kind(
        model=model,
        args=GRPOConfig(**(arguments | more.pop("arguments", {}))),
        train_dataset=data,
        processing_class=processor,
        **more,
    )
    return made


def fixed(trainer: Any, policy: Policy, logps: Callable[..., Any] = lambda *_: None) -> None:
    """Let the trainer's sampler give SAMPLED, and log-probs by `logps`."""

    def single_turn(prompt_ids: list[Any], *rest: Any, **named: Any) -> Any:
        count = len(prompt_ids) // 2
        texts = [SAMPLED[(3 * b + k) % 6] for b in range(2) for k in range(count)]
        ids = [policy.codec.encode(text).tolist() for text in texts]
        return ids, logps(prompt_ids, ids)

    trainer._generate_single_turn = single_turn


def backward(trainer: Any) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one batch, one step of the optimiser."""
    model = trainer.model
    model.train()
    model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    batch = next(iter(trainer.get_train_dataloader()))
    torch.manual_seed(0)
    loss = trainer.compute_loss(model, trainer._prepare_inputs(batch))
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return float(loss.detach()), gradients


def extras(**named: Any) -> Any:
    from rrgtrain.integrations.trl_steps import Extras

    return Extras(**named)


def of_letters(completions: list[Any], **_: Any) -> list[float]:
    return [sum(map(ord, c[0]["content"])) % 64 / 8 for c in completions]
