"""Take a trainer's weights in a vLLM worker, and report which it holds.

    vllm serve CHECKPOINT --worker-extension-cls rrgpolicy.vllm_worker.PushedWeights ...

It imports torch and safetensors alone: a server needs this module on its path, and nothing else of
the trainer.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

WEIGHTS = "model.safetensors"
TRAINED = "trained.safetensors"
"""What has been pushed since: the tensors that train."""
CHUNK = 32 << 20  # bytes mixed at a time, which bounds what a digest needs beside the tensors

# Odd 64-bit constants (those of SplitMix64) as signed numbers; multiplication wraps.
_WORD, _PLACE, _MIX = -7046029254386353131, -4658895280553007687, -7723592293110705685


class Digest:
    """A number for named tensors: equal for equal bits, whatever their device and order.

    Every byte of every tensor takes part, with its place, and names, dtypes and shapes do too. A
    tensor is read as 64-bit words; words are mixed by a bijection of word and place and summed
    modulo 2**64, so one changed word always changes the sum. About six passes over the bytes. It
    finds mistakes; it does not resist somebody who wants two equal ones.
    """

    def __init__(self) -> None:
        self._parts: dict[str, int] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        """Counts a tensor in, in the place of an earlier one of that name."""
        about = f"{name} {tensor.dtype} {list(tensor.shape)} {_content(tensor)}"
        own = hashlib.blake2b(about.encode(), digest_size=8).digest()
        self._parts[name] = int.from_bytes(own)

    def passing(
        self, tensors: Iterable[tuple[str, Tensor]], device: torch.device | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """The tensors one by one, each counted in as it is handed on.

        device: where they are digested; None: where they are.
        """
        for name, tensor in tensors:
            self.add(name, tensor if device is None else tensor.to(device))
            yield name, tensor

    @property
    def value(self) -> str:
        return f"{sum(self._parts.values()) % 2**64:016x}"


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The digest of all tensors."""
    digest = Digest()
    for name, tensor in tensors:
        digest.add(name, tensor)
    return digest.value


class PushedWeights:
    """Extend vLLM's worker class (`worker_extension_cls`).

    A report is `{"step", "digest", "held"}`: the step of the last push and the digest of all
    tensors that the model holds of this push and those before it (None before the first, and where
    one failed), and the digest of what it computes with at this moment, in vLLM's own layout.
    `held` is None where kernels keep their own packed copy of a weight, as vLLM's for CPUs do.
    """

    model_runner: Any
    device: torch.device

    def take_weights(
        self,
        step: int,
        directory: str | None = None,
        tensors: Iterable[tuple[str, Tensor]] | None = None,
        *,
        file: str = WEIGHTS,
        whole: bool = True,
        complete: bool = False,
    ) -> dict[str, Any]:
        """Loads a checkpoint's tensors, given or in `directory`, and reports as above.

        whole: they are all that the model needs; else it keeps what it was given of the others.
        complete: a whole push fills each parameter, the tower's too. Raises ValueError where it
        does not, and leaves NaN there, or where image tokens that are to see each other do not
        here.
        """
        # until it has come, nothing is reported
        last, self.__dict__["rrgpolicy_taken"] = self.__dict__.pop("rrgpolicy_digest", None), None
        received = Digest() if whole or last is None else last
        if complete:
            self._require_mask()
        given = _tensors_in(Path(directory) / file) if directory is not None else tensors or ()
        worker: Any = self
        model = self.model_runner.get_model()
        if whole and complete:
            _blank(model)
        # of each layer that keeps its weights
        logging.getLogger("vllm.model_executor.model_loader.reload").setLevel(logging.ERROR)
        with _recorded(model) if complete else nullcontext(set[str]()) as loaded:
            # read from a file they are on the CPU, whose one thread would take many times as long
            worker.reload_weights(weights_iterator=received.passing(given, self.device))
        if whole and complete:
            own = {n.replace(".base_layer.", ".") for n, _ in model.named_parameters()}
            if missing := sorted(own - loaded):
                named = ", ".join(missing[:3])
                raise ValueError(
                    f"no tensor came for {len(missing)} of its weights, such as {named}"
                )
            if lost := [n for n, p in _floating(model) if bool(p.detach().isnan().any())]:
                # its `load_weights` copies past the loaders that a reload listens to
                raise ValueError(
                    f"vLLM's reload has lost what came for {len(lost)} of its weights, such as "
                    f"{lost[0]}"
                )
        for module in model.modules():
            # vLLM packs a head for CPUs when it is loaded; a tied one is not among what is loaded
            if hasattr(module, "cpu_linear") and module.weight.numel():
                module.quant_method.process_weights_after_loading(module)
        self.__dict__["rrgpolicy_digest"] = received
        self.__dict__["rrgpolicy_taken"] = step, received.value
        return self.weights_taken()

    def _require_mask(self) -> None:
        """Refuse attention by which image tokens see less than the model was trained with."""
        runner = self.model_runner
        backends = {group.backend for groups in runner.attn_groups for group in groups}
        for backend in backends if runner.model_config.is_mm_prefix_lm else ():
            if not backend.supports_mm_prefix():
                raise ValueError(
                    f"the tokens of an image see each other in this model, and not in vLLM's "
                    f"{backend.get_name()} attention"
                )

    def weights_taken(self) -> dict[str, Any]:
        step, digest = self.__dict__.get("rrgpolicy_taken") or (None, None)
        own = list(self.model_runner.get_model().named_parameters())
        packed = any(parameter.numel() == 0 for _, parameter in own)
        return {"step": step, "digest": digest, "held": None if packed else digest_of(own)}


@contextmanager
def _recorded(model: Any) -> Iterator[set[str]]:
    """Collect the names of the parameters that `load_weights` of the model has filled."""
    names: set[str] = set()
    load = model.load_weights

    def recording(weights: Iterable[tuple[str, Tensor]]) -> Any:
        filled = load(weights)
        names.update(filled)
        return filled

    model.load_weights = recording
    try:
        yield names
    finally:
        del model.load_weights


@torch.no_grad()
def _blank(model: torch.nn.Module) -> None:
    """Write NaN over every weight, so that one which is not filled shows."""
    for _, parameter in _floating(model):
        parameter.fill_(math.nan)


def _floating(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights that lie open, in a type that has NaN; kernels may keep their own packed copy."""
    types = (torch.float32, torch.float16, torch.bfloat16)
    for name, parameter in model.named_parameters():
        if parameter.dtype in types and parameter.numel() and parameter.dim():
            yield name, parameter


def _tensors_in(path: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            yield name, file.get_tensor(name)


@torch.no_grad()
def _content(tensor: Tensor) -> int:
    content = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    sums = []
    for start in range(0, len(content), CHUNK):
        piece = content[start : start + CHUNK]
        # a copy, since a view of wider words must begin at a multiple of their size
        words = torch.nn.functional.pad(piece.clone(), (0, -len(piece) % 8)).view(torch.int64)
        first = start // 8
        places = torch.arange(first, first + len(words), device=words.device)
        words = words.mul_(_WORD).add_(places.mul_(_PLACE))
        words ^= (words >> 32) & 0xFFFFFFFF
        words *= _MIX
        words ^= (words >> 29) & 0x7FFFFFFFF
        sums.append(words.sum())
    return int(torch.stack(sums).sum()) % 2**64 if sums else 0
