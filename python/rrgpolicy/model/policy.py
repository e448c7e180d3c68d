"""Define `Policy`: a backbone with what reads its input, and perhaps LoRA on its layers."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.utils import PROCESSOR_NAME

from rrgclinical.common.errors import UserError, cause_line
from rrgclinical.progress_bars import no_progress_bars
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.codec import ReportCodec
from rrgpolicy.model.families.images import ImageRule
from rrgpolicy.settings import LoraSettings

# Names of special tokens and of a configuration's ids that stand for what the model is shown.
_SHOWN = re.compile(r"image|img|video|vision|audio|^[be]o[ia]_", re.IGNORECASE)


def ids_of_images(config: Any, tokenizer: Any, rows: int) -> list[int]:
    """List the ids below `rows` that stand for images, videos and vision, in order.

    They are those that the configuration names, and special tokens of such names.
    """
    named = {k: v for k, v in vars(config).items() if k.endswith(("_token_id", "_token_index"))}
    ids = {v for k, v in named.items() if _SHOWN.search(k) and isinstance(v, int)}
    tokens = tokenizer.added_tokens_decoder.items()
    ids |= {i for i, t in tokens if t.special and _SHOWN.search(t.content)}
    return sorted(i for i in ids if 0 <= i < rows)


def special_ids(config: Any, tokenizer: Any, rows: int, ends: Iterable[int]) -> frozenset[int]:
    """List the ids that no text may read as: special tokens, `ends`, images.

    rows: of the embedding, which ids stay below.
    """
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    shown = ids_of_images(config, tokenizer, rows)
    return frozenset({*added, *tokenizer.all_special_ids, *ends, *shown})


@dataclass(kw_only=True)
class Policy(Backbone):
    """A backbone with its tokenizer and, where it sees images, its image processor.

    image_processor: None in a policy of text alone. eos_ids: every token that ends a report when
    sampled; end_of_turn: the one that training appends to a report; keeps_pictures: prompts hold
    the pictures of their images too; chat_template_kwargs: values of the chat template by name,
    see `template_kwargs`.
    """

    tokenizer: Any
    image_processor: Any
    eos_ids: tuple[int, ...]
    end_of_turn: int
    keeps_pictures: bool = False
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def codec(self) -> ReportCodec:
        vocabulary = self.embedding_shape[0]
        special = self.special_ids
        return ReportCodec(self.tokenizer, self.eos_ids, self.end_of_turn, vocabulary, special)

    @property
    def images(self) -> ImageRule | None:
        """Prepare images as the family does; None in a policy of text alone."""
        if self.image_processor is None:
            return None
        rule = self.family.images(self.image_processor, self.config)
        rule.keeps = self.keeps_pictures
        return rule

    @cached_property
    def never_sampled(self) -> tuple[int, ...]:
        """The ids of images, videos and vision, which no report may hold.

        The model's own forward would take one for an image that is not there.
        """
        shown = ids_of_images(self.config, self.tokenizer, self.embedding_shape[0])
        return tuple(i for i in shown if i not in self.eos_ids)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """List the ids that no text may read as: special tokens, ends, images."""
        return special_ids(self.config, self.tokenizer, self.embedding_shape[0], self.eos_ids)

    @property
    def generation_config(self) -> GenerationConfig:
        """Configure `generate` to decode as an evaluation: greedy, no penalty, its own ends.

        A checkpoint from the hub brings another (Qwen2.5-VL a repetition penalty), under which it
        would write other reports than it was trained and judged by.
        """
        return GenerationConfig(
            do_sample=False,
            temperature=1.0,
            top_p=1.0,
            repetition_penalty=1.0,
            eos_token_id=list(self.eos_ids),
            pad_token_id=self.pad_id,
            suppress_tokens=list(self.never_sampled) or None,
        )

    def save(self, directory: str | Path, weights: dict[str, Tensor] | None = None) -> Path:
        """Write a checkpoint directory that `load_policy` takes (for PEFT, the adapter only).

        Each weight is written in the dtype it is kept in: masters in fp32, since what fine-tuning
        changes in ten steps of lr 1e-5 is mostly lost in bf16; a frozen tower in its own. Whoever
        reads it chooses the dtype (`dtype=` of transformers, `--dtype` of vLLM).

        weights: the model's state where it cannot be asked for it, its parameters being sharded.
        """
        directory = Path(directory)
        if directory.is_file():
            raise UserError(f"cannot save the policy to the file {directory}; name a directory")
        model: Any = self.model
        with no_progress_bars():
            model.save_pretrained(directory, state_dict=weights)
        self.save_preprocessing(directory)
        return directory

    def save_preprocessing(self, directory: Path) -> None:
        """Writes what a checkpoint directory holds beside the model."""
        self.generation_config.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)
        if self.images is not None:
            self.image_processor.save_pretrained(directory)
            if own := self.images.own_config():
                (directory / PROCESSOR_NAME).write_text(json.dumps(own, indent=2) + "\n")


@contextmanager
def training_only(policy: Policy, part: str) -> Iterator[None]:
    """Inside, `all` trains what trains anyway; `vision` leaves out everything but the tower and
    its projector (DEER's first stage).

    Raises UserError where nothing would be left to train.
    """
    if part == "all":
        yield
        return
    if not policy.sees_images:
        raise UserError(
            f"sft.train=vision, but a {type(policy.backbone).__name__} has no vision tower; use "
            "sft.train=all"
        )
    inside = {id(p) for _, p in policy.eyes()}
    frozen = [p for p in policy.model.parameters() if p.requires_grad and id(p) not in inside]
    if policy.vision_frozen:
        raise UserError(
            "sft.train=vision with a frozen vision tower trains nothing; "
            "use policy.freeze_vision=false or sft.train=all"
        )
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


def add_lora(policy: Policy, settings: LoraSettings, seed: int) -> None:
    """Put LoRA on the decoder's layers, in place; nothing else trains from then on.

    A policy that was loaded with an adapter keeps that one. `seed` draws the adapter's first
    weights. Raises UserError where a loaded adapter has another rank than the recipe, and warns of
    another alpha or dropout.
    """
    model: Any = policy.model
    if settings.rank == 0:
        return
    if hasattr(model, "get_base_model"):
        _compare(settings, model.peft_config.values())
        return
    from peft import LoraConfig, get_peft_model  # a second, and most policies have no adapter

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=policy.family.lora_targets(policy.backbone),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            adapted: Any = get_peft_model(model, config)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"policy.lora.rank={settings.rank}, but PEFT puts no adapter on a "
                f"{type(model).__name__} ({cause_line(error)}); use policy.lora.rank=0, or another "
                "model"
            ) from error
        policy.go_on_with(adapted.eval())


def _compare(settings: LoraSettings, loaded: Collection[Any]) -> None:
    """Refuse another rank than that of the loaded adapters; warn of another alpha or dropout."""
    ranks = {config.r for config in loaded}
    if ranks != {settings.rank}:
        raise UserError(
            f"policy.lora.rank={settings.rank}, but the adapter in policy.path has rank "
            f"{', '.join(map(str, sorted(ranks)))}; set policy.lora.rank to that"
        )
    for config in loaded:
        for name, own in (("alpha", config.lora_alpha), ("dropout", config.lora_dropout)):
            if (value := getattr(settings, name)) != own:
                warnings.warn(
                    f"policy.lora.{name}={value:g} has no effect: the adapter in policy.path "
                    f"keeps its own, {own:g}",
                    stacklevel=3,
                )
