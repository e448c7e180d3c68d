"""Refuse incomplete checkpoints that transformers would fill in silently; read them in parts."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, logging
from transformers.utils.hub import get_checkpoint_shard_files

from rrgclinical.common.errors import UserError, unreadable
from rrgpolicy.model.adapters import adapter_state, is_adapted
from rrgpolicy.model.template import render_turn
from rrgpolicy.ranks import gathered
from rrgpolicy.ranks.layout import Fill

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
    with ExitStack() as stack:
        # transformers reports missing tensors over many lines, and goes on with random ones
        stack.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity_error()
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


def load_skeleton(
    name: str, load: Callable[..., Any], dtype: torch.dtype, device: torch.device | str
) -> tuple[Any, Fill | None]:
    """Build the model with parameters on the meta device and buffers on `device`.

    transformers itself decides: it loads marks in place of tensors, one element each that is
    expanded to the tensor's shape, and a parameter is the tensor whose mark it views. Names, ties,
    buffers and what is missing are so those of an ordinary loading.

    load: `from_pretrained` with all but the name. Returns the model and how its weights are read,
    which `sharding.setup` does. Returns (None, None), and warns, where tensors cannot be read one
    by one: another format, one that transformers changes while it loads, or a head that
    config.json ties and that differs from the embedding. Raises UserError as `load_model`.
    """
    files = fetch(name, lambda: _safetensors(name))
    shapes = fetch(name, lambda: {k: s for file in files for k, s in _shapes(file).items()})
    marks = {key: torch.zeros((), dtype=dtype).expand(shape) for key, shape in shapes.items()}
    model: Any = None
    if marks:
        model = load_model(name, lambda **options: load(None, state_dict=marks, **options))
    where = {key: file for file in files for key in _shapes(file)}
    keys = _keys(model, marks) if model is not None else None
    if keys is None or fetch(name, partial(_tied_in_name_alone, model, keys, where)):
        warnings.warn(
            f"the weights of {name} cannot be read one by one, so each process holds the whole "
            "model while it starts; save them as safetensors by save_pretrained",
            stacklevel=2,
        )
        return None, None
    model.config.name_or_path = model.name_or_path = name
    if any((Path(file).parent / "generation_config.json").is_file() for file in files):
        model.generation_config = fetch(name, lambda: GenerationConfig.from_pretrained(name))
    _empty(model, device)
    return model, gathered.from_main(_reader(name, keys, where))


def _reader(
    name: str, keys: Mapping[str, str], where: Mapping[str, str]
) -> Callable[[str, Tensor], None]:
    """Read the weight of a parameter into a tensor, and refuse one that is not finite."""

    def read(parameter: str, out: Tensor) -> None:
        key = keys[parameter]
        fetch(name, lambda: _read(where[key], key, out))
        check_finite(name, {parameter: out})

    return read


def _read(file: str, key: str, out: Tensor) -> None:
    with safe_open(file, framework="pt") as tensors:
        out.copy_(tensors.get_tensor(key))  # mapped, so that it stands in memory once


def _safetensors(name: str) -> list[str]:
    """Find the files as transformers does; none where the weights have another format."""
    options: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}
    whole = cached_file(name, SAFE_WEIGHTS_NAME, **options)
    if whole is not None:
        return [whole]
    index = cached_file(name, SAFE_WEIGHTS_INDEX_NAME, **options)
    return [] if index is None else list(get_checkpoint_shard_files(name, index)[0])


def _shapes(file: str) -> dict[str, list[int]]:
    with safe_open(file, framework="pt") as tensors:
        return {key: tensors.get_slice(key).get_shape() for key in tensors.keys()}  # noqa: SIM118


def _keys(model: nn.Module, marks: Mapping[str, Tensor]) -> dict[str, str] | None:
    """The tensor of each parameter; None where one is no tensor of the file, or a buffer is one."""
    by_place = {mark.untyped_storage().data_ptr(): key for key, mark in marks.items()}

    def key_of(tensor: Tensor) -> str | None:
        key = by_place.get(tensor.untyped_storage().data_ptr())
        return key if key is not None and tensor.shape == marks[key].shape else None

    keys = {name: key_of(parameter) for name, parameter in model.named_parameters()}
    if any(map(key_of, model.buffers())):
        return None
    of_files = {name: key for name, key in keys.items() if key is not None}
    return of_files if len(of_files) == len(keys) else None


def _tied_in_name_alone(model: Any, keys: Mapping[str, str], where: Mapping[str, str]) -> bool:
    """Tell if a tied weight has other values in the files: marks are equal, so it was tied."""

    def tensor(key: str) -> Tensor:
        with safe_open(where[key], framework="pt") as tensors:
            return tensors.get_tensor(key)

    tied = ((key, keys.get(source)) for key, source in model.all_tied_weights_keys.items())
    return any(
        not torch.equal(tensor(key), tensor(source))
        for key, source in tied
        if key in where and source is not None
    )


def _empty(model: nn.Module, device: torch.device | str) -> None:
    """Put parameters on the meta device, tied ones as one, and buffers on `device`."""

    def unread(_: str, mark: nn.Parameter) -> nn.Parameter:
        return nn.Parameter(torch.empty(mark.shape, dtype=mark.dtype, device="meta"))

    gathered.put(model, gathered.named(model), unread)
    for module in model.modules():
        for leaf, buffer in [*module.named_buffers(recurse=False, remove_duplicate=False)]:
            setattr(module, leaf, buffer.to(device))
