"""`load_policy`: a checkpoint directory or a hub name in, a `Policy` out."""

from __future__ import annotations

import inspect
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.utils import cached_file

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.hub import reach_hub
from rrgclinical.progress_bars import no_progress_bars
from rrgpolicy.model.attention import use_rows
from rrgpolicy.model.backbone import SHARED_ATTENTION, architecture, refuse_other_kinds, sees_images
from rrgpolicy.model.families import family_of, module_of
from rrgpolicy.model.families.images import ImageRule
from rrgpolicy.model.own_forward import FEATURES
from rrgpolicy.model.packed_windows import PACKED_WINDOWS, vision_attention
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.template import end_of_turn
from rrgpolicy.model.whole import (
    COPY,
    check_finite,
    check_tokenizer,
    fetch,
    load_adapter,
    load_model,
    load_skeleton,
)
from rrgpolicy.ranks.layout import Layout
from rrgpolicy.settings import refuse_missing

__all__ = ["Policy", "end_of_turn", "fetch", "load_policy", "read_config"]

PREPROCESSOR, LEGACY_TEMPLATE = "preprocessor_config.json", "chat_template.json"


def load_policy(  # noqa: PLR0913
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | str = torch.float32,
    device: torch.device | str = "cpu",
    freeze_vision: bool = False,
    gradient_checkpointing: bool = False,
    attn: str = "auto",
    vision_attn: str = "auto",
    masters: bool = False,
    unread: bool = False,
) -> Policy:
    """Loads a checkpoint of transformers with its tokenizer and, if any, image processor.

    A directory with a LoRA adapter is loaded onto the base that the adapter names, and trains on.

    Args:
        name_or_path: a directory written by `Policy.save` or `save_pretrained`, or a hub name.
        dtype: of the computation, and of the parameters without `masters`; a torch dtype or its
            name.
        device: where the model goes.
        freeze_vision: the vision tower and its merger, where there is one, take no gradient.
        gradient_checkpointing: recompute each layer in the backward pass.
        attn: how a shared prefix is attended, see `Network`.
        vision_attn: that of the vision tower, see `vision_attention`.
        masters: parameters that may train are loaded in fp32 (or `dtype`, if that is wider), for
            training by `ranks.sharding`; a frozen tower and the base of an adapter keep `dtype`.
        unread: weights stay in their files until `sharding.setup` reads each rank's part of them.
            An adapter and its base are read here all the same: PEFT builds on whole layers.

    Raises:
        UserError: nothing at that path, the hub cannot be reached, another architecture, an
            unknown dtype or attention, a dtype that the device lacks, a checkpoint that is not
            whole (see `whole`).
    """
    name = str(name_or_path)
    if attn not in SHARED_ATTENTION:
        raise UserError(f"policy.attn={attn}; use one of {', '.join(SHARED_ATTENTION)}")
    dtype = _dtype(dtype)
    require_dtype(device, dtype)
    if (Path(name) / "adapter_config.json").is_file():
        base = load_policy(
            base_of_adapter(name),
            dtype=dtype,
            device=device,
            freeze_vision=freeze_vision,
            gradient_checkpointing=gradient_checkpointing,
            attn=attn,
            vision_attn=vision_attn,
        )
        return _with_adapter(name, base)
    config = read_config(name)
    loaded = torch.promote_types(dtype, torch.float32) if masters else dtype
    tokenizer: Any = fetch(
        name, lambda: AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    )
    family = family_of(config)
    image_processor: Any = None
    options: dict[str, Any] = {}
    tower = vision_attention(vision_attn, device, dtype, windows=family.windows)
    if sees_images(config):
        image_processor = open_images(name, config).processor
        tokenizer.chat_template = _template_of_images(name) or tokenizer.chat_template
        if tower not in ("sdpa", PACKED_WINDOWS):
            options["attn_implementation"] = {"vision_config": tower}
    load = partial(
        getattr(transformers, str(architecture(config))).from_pretrained,
        config=config,
        dtype=loaded,
        **options,
    )
    with no_progress_bars():
        model, fill = load_skeleton(name, load, loaded, device) if unread else (None, None)
        if model is None:
            # read whole on the CPU first, the models of eight ranks would lie there at once
            straight = None if torch.device(device).type == "cpu" else {"": torch.device(device)}
            model = load_model(name, partial(load, name, device_map=straight))
            model.to(device)
            for weight in model.parameters():  # those that were in fp8 come in bf16, unasked
                if weight.is_floating_point() and weight.itemsize < loaded.itemsize:
                    weight.data = weight.data.to(loaded)
            check_finite(name, dict(model.named_parameters()))
    use_rows(model)
    if getattr(config.get_text_config(), "output_router_logits", False):
        warnings.warn(
            f"{name}: config.json asks for the auxiliary loss of the experts' routers "
            "(output_router_logits), which no objective here adds",
            stacklevel=2,
        )
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    # The files may hold a head of their own whatever config.json says, and the hub's flat one says
    # it once: vLLM would believe either part.
    for part in (model.config, model.config.get_text_config()):
        part.tie_word_embeddings = tied
    check_tokenizer(name, tokenizer, model.get_input_embeddings().num_embeddings)
    if tower == PACKED_WINDOWS and sees_images(config):
        model.set_attn_implementation({"vision_config": PACKED_WINDOWS})
    if gradient_checkpointing:
        checkpoint_layers(model)
    model.eval()
    listed = _listed_ends(name, model)
    closing = fetch(name, lambda: end_of_turn(tokenizer), "the chat template of ")
    if "strftime_now" in tokenizer.get_chat_template():
        warnings.warn(
            f"{name}: its chat template may write today's date (strftime_now), so that prompts are "
            "others after midnight and a run that is resumed then does not go on to the same bits; "
            "write a date into the template instead",
            stacklevel=2,
        )
    closing = next(iter(listed), None) if closing is None else closing
    if closing is None:
        raise UserError(
            f"neither the chat template of {name} nor its generation_config.json says what ends a "
            f"turn; use the tokenizer that {type(model).__name__} comes with"
        )
    pad_id = closing if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    policy = Policy(
        model=model,
        tokenizer=tokenizer,
        image_processor=image_processor,
        device=torch.device(device),
        eos_ids=tuple(dict.fromkeys([closing, *listed])),
        end_of_turn=closing,
        pad_id=pad_id,
        attn=attn,
        compute_dtype=dtype,
        layout=Layout(fill=fill),
    )
    fetch(name, lambda: (policy.head(), policy.language_model))
    fetch(name, lambda: policy.codec, "the tokenizer of ")
    model.generation_config = policy.generation_config
    for _, parameter in policy.eyes() if freeze_vision else []:
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(dtype)
    return policy


def _with_adapter(name: str, policy: Policy) -> Policy:
    """Load the adapter in the directory `name` onto the policy of its base."""
    policy.model = load_adapter(name, policy.model)
    fetch(name, policy.head)
    check_finite(name, dict(policy.model.named_parameters()))
    if policy.sees_images and (Path(name) / PREPROCESSOR).is_file():
        # with the bounds of images that the adapter was trained with
        policy.image_processor = open_images(name, policy.config).processor
    return policy


def checkpoint_layers(model: Any) -> None:
    """Let each layer be computed again in the backward pass."""
    # Renamed in transformers 5.23; the older name still works there, with a warning.
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def _refuse_layout(name: str, config: Any) -> None:
    """UserError for a family whose images the loader does not prepare."""
    pil = (IMAGE_PROCESSOR_MAPPING_NAMES.get(config.model_type) or {}).get("pil")
    if pil != family_of(config).images.reads:
        raise UserError(
            f"{name}: the images of a {config.model_type} are prepared by {pil or 'torchvision'}, "
            f"for which model/families/{module_of(config)}.py would have to say how many tokens "
            "an image gets; name a Qwen-VL, Gemma 3, InternVL or LLaVA-OneVision, or call "
            "shared_prefix_logps in a loop of your own"
        )
    forward = getattr(transformers, str(architecture(config))).forward
    family = family_of(config)
    takes = family.packed or not family.joins
    if not takes and FEATURES not in inspect.signature(forward).parameters:
        raise UserError(
            f"{name}: the images of a {config.model_type} are computed once for a group, and its "
            f"forward takes no {FEATURES} in transformers {transformers.__version__}; install a "
            "newer one"
        )


def open_images(name: str, config: Any) -> ImageRule:
    """Read how a checkpoint's images are prepared; UserError where that does not fit the model."""
    kind = family_of(config).images
    processor = fetch(name, lambda: getattr(transformers, kind.reads).from_pretrained(name))
    images = kind(processor, config)
    if fault := fetch(name, lambda: next(images.faults(), None)):
        raise UserError(f"{name}: {fault}; {COPY}")
    return images


def _template_of_images(name: str) -> str | None:
    """Read the chat template that older checkpoints keep for their processor; None without one."""
    file = fetch(
        name,
        lambda: cached_file(name, LEGACY_TEMPLATE, _raise_exceptions_for_missing_entries=False),
    )
    template = None if file is None else json_reader.read(Path(file), dict).get("chat_template")
    return template if isinstance(template, str) else None


def read_config(name: str) -> Any:
    """transformers' configuration of a checkpoint, of its base for an adapter; no weights are read.

    Raises UserError as `load_policy` does where there is none, or it is no model for the trainer.
    """
    if (Path(name) / "adapter_config.json").is_file():
        return read_config(base_of_adapter(name))
    refuse_missing(name)
    if not Path(name).is_dir():
        reach_hub()
    config = fetch(name, lambda: AutoConfig.from_pretrained(name, trust_remote_code=False))
    _refuse_foreign(name, config)
    return config


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UserError(f"policy.dtype={dtype} is no floating-point type; use float32 or bfloat16")
    return found


def require_dtype(device: torch.device | str, dtype: torch.dtype) -> None:
    """UserError where the device does not compute in the dtype."""
    device = torch.device(device)
    if dtype != torch.bfloat16 or device.type != "cuda":
        return
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UserError(
            f"policy.dtype=bfloat16, which {torch.cuda.get_device_name(device)} lacks; use "
            "policy.dtype=float32, or a GPU of compute capability 8.0 or more (float16 would "
            "need a loss scale, which the trainer does not keep)"
        )


def _refuse_foreign(name: str, config: Any) -> None:
    wanted = architecture(config)
    seen = getattr(config, "architectures", None) or [wanted or config.model_type]
    if not isinstance(seen, list) or not all(isinstance(one, str) for one in seen):
        raise UserError(f"{name}: config.json has architectures {seen!r}; wanted a list of names")
    if wanted is None:
        raise UserError(
            f"{name}: a {config.model_type} predicts no next token; name a language model, or one "
            "that sees images too"
        )
    if wanted not in seen:
        raise UserError(
            f"{name}: config.json names {', '.join(seen)}, and a {config.model_type} that writes "
            f"text is a {wanted}; name such a checkpoint"
        )
    try:
        refuse_other_kinds(config)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None
    if sees_images(config):
        _refuse_layout(name, config)


def base_of_adapter(adapter: str) -> str:
    """The checkpoint that a directory with an adapter builds on; UserError where it names none."""
    file = Path(adapter) / "adapter_config.json"
    base = fetch(adapter, lambda: json_reader.read(file, dict)).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise UserError(
            f"the adapter in {adapter} names no base; set base_model_name_or_path in its "
            "adapter_config.json"
        )
    if (Path(base) / "adapter_config.json").is_file():
        raise UserError(
            f"the adapter in {adapter} is of {base}, another adapter; merge that one into its "
            "base, and name the result as base_model_name_or_path"
        )
    if not Path(base).is_dir():  # what one lacks is told where it is read
        try:
            refuse_missing(base)
        except UserError as error:
            raise UserError(
                f"the adapter in {adapter} is of {base}, which is no checkpoint directory seen "
                f"from {Path.cwd()}; put it back, or set base_model_name_or_path in its "
                "adapter_config.json"
            ) from error
    return str(base)


def _listed_ends(name: str, model: Any) -> list[int]:
    """List the ends of generation_config.json; UserError for a file that is no JSON.

    transformers takes that for absent, and other tokens would then end a report.
    """
    file = Path(name, "generation_config.json")
    try:
        if file.is_file():
            json_reader.read(file, dict)
    except ValueError as error:
        raise UserError(
            f"{file} cannot be read ({error}); put it back as its model has it, or delete it"
        ) from error
    listed = model.generation_config.eos_token_id
    ids = [] if listed is None else listed if isinstance(listed, list) else [listed]
    rows = model.get_input_embeddings().num_embeddings
    # of a vocabulary that was cut an end may be left that nothing can sample
    ends = [token for token in ids if type(token) is not int or token < rows]
    if not all(type(token) is int and token >= 0 for token in ends) or (ids and not ends):
        there = file.is_file() or not Path(name).is_dir()
        raise UserError(
            f"{name}: {'generation_' * there}config.json has eos_token_id {listed!r}; wanted a "
            f"token id or a list of them, one at least below {rows}"
        )
    return ends
