"""`shared_prefix_logps`: log-probs of groups of completions, for a training loop of one's own.

The model is one of transformers, loaded as ever; nothing of the trainer is needed.
"""

from __future__ import annotations

import inspect
import numbers
import sys
from collections.abc import Mapping, MutableMapping, Sequence, Set
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rrgclinical.common.arguments import listed, unwrapped
from rrgkern import linear_token_logps
from rrgpolicy.model.attention import use_rows
from rrgpolicy.model.backbone import SHARED_ATTENTION, SHARINGS, Backbone, refuse_other_kinds
from rrgpolicy.model.forward import hidden_states
from rrgpolicy.model.probe import Probed, probe
from rrgpolicy.model.prompt import EncodedPrompt, placed

OF_PROMPT = ("input_ids", "attention_mask", "pixel_values")
OF_CACHE = ("use_cache", "past_key_values", "cache", "cache_params")
OF_A_CALL = ("labels", "position_ids", "inputs_embeds", *OF_CACHE)

_PROBED: WeakKeyDictionary[nn.Module, dict[Any, Probed]] = WeakKeyDictionary()


class SharedPrefixLogps(NamedTuple):
    """Log-probs of N tokens of S completions, in order, on the model's device.

    logps and entropy fp32 [N] (entropy None unless asked for); targets int64 [N];
    offsets int64 [S + 1] and group_offsets int64 [B + 1], as rrgkern's losses take them;
    sharing: the way that prompts were shared, "row", "cache" or "none".
    """

    logps: Tensor
    entropy: Tensor | None
    targets: Tensor
    offsets: Tensor
    group_offsets: Tensor
    sharing: str


def shared_prefix_logps(  # noqa: PLR0913
    model: nn.Module,
    prompts: Sequence[Mapping[str, Any]],
    completions: Sequence[Sequence[Tensor | Sequence[int]]],
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    token_budget: int | None = None,
    attn: str = "auto",
    vision_cache: MutableMapping[str, Any] | None = None,
    sharing: str = "auto",
) -> SharedPrefixLogps:
    """Log-probs of every completion token, each prompt and its images computed once per group.

    Equal, with all gradients, to a forward of each `[prompt | completion]` on its own, up to
    rounding (and to dropout, LoRA's or attention's, whose mask a group's prompt shares).

    Args:
        model: a model of transformers that predicts tokens, or a PEFT model around one; its mode,
            gradients and gradient checkpointing are used as they are. Its attention must be "sdpa"
            or "eager"; it is set to one that is the same wherever no prefix is shared. The first
            call for a model, and the first with images, probe how its prompts can be shared, and
            say so on standard error.
        prompts: for each of B groups what a processor returns for its one prompt: `input_ids`
            int [P] or [1, P], image tokens expanded; `attention_mask` if it was padded; the other
            arguments of the forward, such as `pixel_values`, for its images; and, for
            `vision_cache`, a string `key` that names them.
        completions: for each group its G_b >= 0 completions, [T] ids each, every one scored.
        temperature: divides the logits.
        entropy: also the entropy of every token's distribution, differentiable.
        token_budget: tokens per row; all groups share one row by default.
        attn: see `Backbone`.
        vision_cache: image features by `key`, for a vision tower that is frozen.

    Raises:
        TypeError: a prompt that is no mapping with `input_ids`; ids, completions or an option of
            another type.
        ValueError: a model that cannot share a prompt, with the reason; prompts and completions
            that do not fit, ids beyond the vocabulary; see also `pack_shared_prefix`.
    """
    _check_options(temperature, token_budget, entropy, vision_cache)
    prompts = listed(prompts, "prompts", "what a processor returns for each")
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, Mapping) or "input_ids" not in prompt:
            lacks = " without input_ids" if isinstance(prompt, Mapping) else ""
            raise TypeError(
                f"prompt {number} is a {type(prompt).__name__}{lacks}: give what a processor "
                'returns for it, {"input_ids": ids, ...}'
            )
    groups = _groups_of_ids(completions)
    network = _backbone(model, prompts, attn, sharing)
    vocabulary = network.head()[0].shape[0]
    for group, members in enumerate(groups):
        for member, ids in enumerate(members):
            _check_known(f"completion {member} of group {group}", ids, vocabulary)
    cached = vision_cache is not None
    encoded = [_encoded(network, p, b, cached=cached) for b, p in enumerate(prompts)]
    network.vision_cache = vision_cache
    hidden, batch = hidden_states(network, encoded, groups, token_budget=token_budget)
    weight, bias, softcap = network.head()
    out = linear_token_logps(
        *(hidden, weight, batch.targets),
        bias=bias,
        softcap=softcap,
        temperature=temperature,
        entropy=entropy,
    )
    return SharedPrefixLogps(
        out.logps, out.entropy, batch.targets, batch.offsets, batch.group_offsets, network.way
    )


def probe_shared_prefix(
    model: nn.Module,
    prompts: Sequence[Mapping[str, Any]],
    *,
    attn: str = "auto",
    sharing: str = "auto",
) -> str:
    """Probe how prompts can be shared, before `fully_shard`; return "row", "cache" or "none".

    Arguments and errors are those of `shared_prefix_logps`, whose later calls for this model with
    the same options take what was found. Prompts with images are probed by prompts with images.
    """
    return _backbone(model, prompts, attn, sharing).way


def _check_options(
    temperature: object, token_budget: object, entropy: object, vision_cache: object
) -> None:
    if isinstance(temperature, bool):
        raise TypeError(f"temperature is {temperature}; wanted a number")
    budget = unwrapped(token_budget)
    whole = isinstance(budget, numbers.Integral) and not isinstance(budget, bool)
    if budget is not None and not whole:
        raise TypeError(f"token_budget is {token_budget!r:.40}; wanted a whole number, or None")
    if not isinstance(unwrapped(entropy), bool):
        raise TypeError(f"entropy is {entropy!r:.40}; wanted True or False")
    if vision_cache is not None and not isinstance(vision_cache, MutableMapping):
        raise TypeError(f"vision_cache is {vision_cache!r:.40}; wanted a mapping, such as {{}}")


def _groups_of_ids(completions: Sequence[Sequence[Tensor | Sequence[int]]]) -> list[list[Tensor]]:
    """List the completions of each group, int64 [T] each."""
    groups = []
    for group, members in enumerate(listed(completions, "completions", "a list for each prompt")):
        name = f"completions[{group}]"
        groups.append(
            [_ids(one, f"{name}[{m}]") for m, one in enumerate(listed(members, name, "ids"))]
        )
    return groups


def _ids(written: Any, name: str) -> Tensor:
    """Return token ids int64 on the CPU; TypeError for what is no list of whole numbers."""
    if not hasattr(written, "dtype"):
        members = listed(written, name, "ids")
        for value in members:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} holds {value!r:.40}; wanted token ids, whole numbers")
        return torch.tensor([int(value) for value in members], dtype=torch.int64)
    ids = torch.as_tensor(written)
    if not ids.dim():
        raise TypeError(f"{name} is one number; wanted the ids of one completion, a list for each")
    if not ids.numel():  # torch.tensor([]) says nothing of its type
        return ids.new_zeros(ids.shape, dtype=torch.int64, device="cpu")
    if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise TypeError(f"{name} is {ids.dtype}; wanted token ids, whole numbers")
    return ids.long().cpu()


def _prompt_ids(written: Any, name: str) -> Tensor:
    """Return the ids of a prompt as they are shaped, a list of one list among them."""
    if hasattr(written, "dtype") and not written.ndim:
        return torch.as_tensor(written)  # whose shape is refused
    if isinstance(written, list | tuple) and len(written) == 1:
        (only,) = written
        is_number = hasattr(only, "__index__") and not getattr(only, "ndim", 0)
        return _ids(written if is_number else only, name)
    return _ids(written, name)


def _check_known(name: str, ids: Tensor, vocabulary: int) -> None:
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        odd = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise ValueError(f"{name} has the id {odd}; the model knows 0 to {vocabulary - 1}")


def _backbone(
    model: nn.Module, prompts: Sequence[Mapping[str, Any]], attn: str, sharing: str
) -> Backbone:
    if attn not in SHARED_ATTENTION:
        raise ValueError(f"attn={attn!r}: use one of {', '.join(SHARED_ATTENTION)}")
    if sharing not in ("auto", *SHARINGS):
        raise ValueError(f"sharing={sharing!r}: use one of auto, {', '.join(SHARINGS)}")
    adapters: Any = getattr(model, "peft_config", {})
    if any(config.is_prompt_learning for config in adapters.values()):
        raise ValueError("prompt-learning adapters prepend tokens of their own: use LoRA")
    # `add_adapter` of transformers sets `peft_config` too, and wraps nothing
    wraps = hasattr(model, "get_base_model")
    inner: Any = model.get_base_model() if wraps else model  # type: ignore[operator]
    if isinstance(inner, torch._dynamo.OptimizedModule):
        raise ValueError("a model that torch.compile wraps cannot share prefixes: model.compile()")
    if not isinstance(inner, PreTrainedModel) or inner.get_output_embeddings() is None:
        raise ValueError(
            f"a {type(inner).__name__} cannot share prefixes: wanted a model of transformers with "
            "a head that predicts tokens, or a PEFT model around one (under "
            "DistributedDataParallel, wrap a module whose forward calls this function)"
        )
    refuse_other_kinds(inner.config)
    use_rows(inner)
    embedding: Any = inner.get_input_embeddings()
    backbone = Backbone(model=model, device=embedding.weight.device, pad_id=0, attn=attn)
    _ = backbone.head(), backbone.language_model  # which have reasons of their own to refuse
    probed = _PROBED.setdefault(model, {})
    pictured = any(p.get("pixel_values") is not None for p in prompts)
    checkpointed = any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    frozen = not all(p.requires_grad for p in model.parameters())
    key = (attn, sharing, checkpointed, frozen, pictured)
    if key not in probed:
        if any(isinstance(p, DTensor) for p in model.parameters()):
            raise ValueError(
                "the weights are sharded already, and shards cannot be probed: call "
                "rrgpolicy.model.probe_shared_prefix(model, prompts) once before fully_shard, with "
                "images where there will be images, and with what trains as it will be"
            )
        examples = [_encoded(backbone, p, b, cached=False) for b, p in enumerate(prompts)]
        counts = {len(e.images.get("pixel_values", ())): e for e in examples if len(e.input_ids)}
        if not counts:
            return backbone  # nothing to probe with, and nothing to compute
        probed[key] = probe(backbone, [*counts.values()][:2], sharing)
        print(f"rrgpolicy: {probed[key].line(type(inner).__name__)}", file=sys.stderr)
    probed[key].applied(backbone)
    return backbone


def _encoded(
    backbone: Backbone, prompt: Mapping[str, Any], number: int, *, cached: bool
) -> EncodedPrompt:
    takes = inspect.signature(backbone.backbone.forward).parameters
    of_prompt = [k for k in (*OF_PROMPT, *takes) if k in prompt or k in OF_PROMPT[:2]]
    unknown = {k for k in prompt.keys() - {*of_prompt, "key"} if prompt[k] is not None}
    unknown |= {k for k in prompt if "video" in k or "audio" in k or k in OF_A_CALL}
    if prompt.get("pixel_values") is not None and not backbone.sees_images:
        raise ValueError(f"prompt {number} has images, and the model has no vision tower")
    _refuse(number, unknown)
    given_ids = _prompt_ids(prompt["input_ids"], f"prompt {number}: input_ids")
    ids = given_ids[None] if given_ids.dim() == 1 else given_ids
    if ids.dim() != 2 or len(ids) != 1:
        raise ValueError(
            f"prompt {number}: input_ids of shape {tuple(given_ids.shape)}: give one prompt, [P] "
            "or [1, P]"
        )
    mask = prompt.get("attention_mask")
    if mask is not None:
        mask = torch.as_tensor(mask).cpu()
        if mask.numel() != ids.numel() or bool(((mask != 0) & (mask != 1)).any()):
            raise ValueError(
                f"prompt {number}: attention_mask of shape {tuple(mask.shape)} for "
                f"{ids.shape[1]} ids: give 1 for a token and 0 for padding, one each"
            )
    inputs = {k: prompt[k] for k in of_prompt if prompt.get(k) is not None} | {"input_ids": ids}
    inputs = {k: v if k == "pixel_values" else torch.as_tensor(v).cpu() for k, v in inputs.items()}
    inputs = {k: v.view(1, -1) if v.numel() == ids.numel() else v for k, v in inputs.items()}
    if (mask := inputs.pop("attention_mask", None)) is not None:
        real, shape = mask.bool()[0], ids.shape
        inputs = {k: v[:, real] if v.shape == shape else v for k, v in inputs.items()}
    inputs["input_ids"] = of_text = inputs["input_ids"].long()
    # a family may have an id for its images that no row of the embedding is for
    if backbone.image_token_id is not None:
        of_text = of_text[of_text != backbone.image_token_id]
    model: Any = backbone.model
    _check_known(f"prompt {number}", of_text, len(model.get_input_embeddings().weight))
    if "image_grid_thw" in takes and ("pixel_values" in inputs) != ("image_grid_thw" in inputs):
        raise ValueError(f"prompt {number}: give both pixel_values and image_grid_thw, or neither")
    if "pixel_values" in inputs and cached and not prompt.get("key"):
        raise ValueError(f"prompt {number} has images without a key: the cache keeps them by it")
    if "mm_token_type_ids" in takes:
        is_image = inputs["input_ids"] == backbone.image_token_id
        inputs["mm_token_type_ids"] = is_image.long()
    encoded = placed(backbone, inputs, key=prompt.get("key", ""))
    # images under another name than pixel_values would be left out in silence
    _refuse(number, inputs.keys() - {"input_ids", *encoded.per_token, *encoded.images})
    return encoded


def _refuse(number: int, names: Set[str]) -> None:
    if names:
        listed = ", ".join(sorted(names))
        raise ValueError(f"prompt {number} has {listed}: give input_ids, attention_mask and images")
