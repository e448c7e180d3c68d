"""Build a checkpoint's model without its weights, and read them one by one.

transformers itself decides: it loads marks in place of tensors, one element each that is expanded
to the tensor's shape, and a parameter is the tensor whose mark it views. Names, ties, buffers and
what is missing are so those of an ordinary loading.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.hub import get_checkpoint_shard_files

from rrgpolicy.model.whole import check_finite, fetch, load_model
from rrgpolicy.ranks import gathered, unread
from rrgpolicy.ranks.layout import Fill

BLOCK_BYTES = 1 << 26
"""A tensor is read in rows of about as much, so that none stands in memory in two dtypes."""


def load_skeleton(
    name: str, load: Callable[..., Any], dtype: torch.dtype, device: torch.device | str
) -> tuple[Any, Fill | None]:
    """Build the model with parameters on the meta device and buffers on `device`.

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
    return model, unread.from_main(_reader(name, keys, where))


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
        rows = tensors.get_slice(key)
        if out.dim() == 0:
            out.copy_(tensors.get_tensor(key))
            return
        step = max(1, BLOCK_BYTES * len(out) // max(1, out.numel() * out.element_size()))
        for start in range(0, len(out), step):
            out[start : start + step].copy_(rows[start : start + step])


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
    known = {name: key for name, key in keys.items() if key is not None}
    return known if len(known) == len(keys) else None


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
