"""Refuse incomplete checkpoints that transformers would fill in silently."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from transformers.utils import logging

from rrgclinical.common.errors import UserError, unreadable
from rrgpolicy.model.adapters import adapter_state, is_adapted
from rrgpolicy.model.chat_template import render_turn

T = TypeVar("T")

_NAMED = 3
COPY = "copy the checkpoint again, or name another one"
# What every tokenizer of a policy must give back; one without its vocabulary gives nothing.
_PROBE = "No acute disease."


def fetch(name: str, get: Callable[[], T], of: str = "") -> T:
    """Calls `get` and tells whatever the libraries raise about the checkpoint `name` in one line.

    `of`: the part of it, as in "the chat template of ".
    """
    try:
        return get()
    except UserError:
        raise
    # Their loaders document no list: safetensors, pickle, jinja2, PEFT and pydantic have their own.
    except Exception as error:
        line = f"cannot load {of}{name}: {_reason(error).rstrip('.')}"
        if not Path(name).is_dir():
            line += "; download it where there is a network, or name a checkpoint directory"
        raise UserError(line) from error


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        return unreadable(error)
    if "custom code" in str(error):
        return "it comes with code of its own, which is never run"
    # transformers and the hub client explain themselves over many lines.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ends = next((k for k, line in enumerate(lines) if not line.endswith(":")), len(lines))
    reason = " ".join(lines[: ends + 1])
    plain = isinstance(error, OSError | ValueError) and type(error).__module__ == "builtins"
    return reason if plain and reason else f"{type(error).__name__}: {reason}"


def load_model(name: str, load: Callable[..., tuple[Any, dict[str, Any]]]) -> Any:
    """The model that `load` gives, with every tensor of it read from the checkpoint.

    `load` is a `from_pretrained` that takes the options of one. Raises UserError for tensors that
    are missing or of another shape, for layers that config.json does not count, and for weights
    that stay quantised.
    """
    with _without_its_report():
        model, found = fetch(
            name, lambda: load(output_loading_info=True, ignore_mismatched_sizes=True)
        )
    if (quantizer := getattr(model, "hf_quantizer", None)) is not None:
        method = getattr(quantizer.quantization_config, "quant_method", "an unknown method")
        raise UserError(
            f"{name} is quantised ({getattr(method, 'value', method)}), and such weights take no "
            "gradient; name the checkpoint that it was made from"
        )
    for key, seen, wanted in sorted(found["mismatched_keys"]):
        raise UserError(
            f"{name}: {key} is {list(seen)}, and config.json wants {list(wanted)}; {COPY}"
        )
    own = {re.sub(r"\d+", "0", key) for key in model.state_dict()}
    uncounted = [key for key in found["unexpected_keys"] if re.sub(r"\d+", "0", key) in own]
    _refuse(name, "lacks weights", found["missing_keys"])
    _refuse(name, "has weights that config.json has no layer for", uncounted)
    return model


def load_adapter(name: str, model: nn.Module) -> Any:
    """`model` with the adapter in the directory `name` on it, to be trained on.

    Raises UserError for tensors that the adapter lacks, and for those that have no place.
    """
    if not any((Path(name) / f"adapter_model.{kind}").is_file() for kind in ("safetensors", "bin")):
        raise UserError(f"{name} has adapter_config.json and no adapter_model.safetensors; {COPY}")

    from peft import PeftModel  # a second, and most policies have no adapter

    def load() -> tuple[Any, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the keys that are told below
            adapted = PeftModel.from_pretrained(model, name, is_trainable=True)
        # Read again, for the result that `from_pretrained` keeps to itself.
        return adapted, adapted.load_adapter(name, "default", is_trainable=True)

    adapted, found = fetch(name, load)
    _refuse(name, "lacks weights", found.missing_keys)
    _refuse(name, "has weights that its base has no place for", found.unexpected_keys)
    return adapted.eval()


def check_finite(name: str, weights: Mapping[str, torch.Tensor]) -> None:
    """UserError that names the first weight with NaN or infinity; waits for the device once."""
    if not weights:
        return
    # A sum is not finite where a summand is not; it needs no second tensor of that size.
    sums = torch.stack([w.detach().sum(dtype=torch.float64) for w in weights.values()])
    for key in (k for k, fine in zip(weights, sums.isfinite().tolist(), strict=True) if not fine):
        if not bool(weights[key].isfinite().all()):
            raise UserError(f"{name}: {key} holds NaN or infinity; {COPY}")


def check_rounded(name: str, model: nn.Module, dtype: torch.dtype) -> None:
    """Raise UserError for a weight, of an adapter where one is, beyond `dtype`."""
    state = model.state_dict()
    for key, weight in (adapter_state(model, state) if is_adapted(model) else state).items():
        beyond = weight.is_floating_point() and weight.to(dtype).isinf() & weight.isfinite()
        if bool(torch.as_tensor(beyond).any()):
            kind = str(dtype).removeprefix("torch.")
            raise UserError(f"{name}: {key} has values beyond {kind}; use bf16 or fp32")


def check_tokenizer(name: str, tokenizer: Any, rows: int) -> None:
    """Raise UserError for a tokenizer that does not fit the model.

    It loses plain text, has no chat template, or has more tokens than the `rows` of the model's
    embedding.
    """

    def probe() -> str:
        render_turn(tokenizer, _PROBE)
        return tokenizer.decode(tokenizer(_PROBE, add_special_tokens=False)["input_ids"])

    if tokenizer.chat_template is None:
        raise UserError(
            f"the tokenizer of {name} has no chat template; add the chat_template.jinja that its "
            "model comes with"
        )
    if (seen := fetch(name, probe, "the chat template of ")) != _PROBE:
        raise UserError(
            f"the tokenizer of {name} makes {seen!r} of {_PROBE!r}: its vocabulary is missing or "
            "not its own; add tokenizer.json"
        )
    if len(tokenizer) > rows:
        raise UserError(
            f"the tokenizer of {name} has {len(tokenizer)} tokens, and the model knows {rows}; "
            "use the one that it comes with"
        )


def _refuse(name: str, fault: str, keys: set[str] | list[str]) -> None:
    if keys:
        first = ", ".join(sorted(keys)[:_NAMED])
        rest = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        raise UserError(f"{name} {fault}: {first}{rest}; {COPY}")


@contextmanager
def _without_its_report() -> Iterator[None]:
    """transformers reports missing tensors over many lines, and goes on with random ones."""
    shown = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(shown)
