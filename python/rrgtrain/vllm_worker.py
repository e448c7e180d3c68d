"""Take a trainer's weights in a vLLM worker, and report which it holds.

    vllm serve CHECKPOINT --worker-extension-cls rrgtrain.vllm_worker.PushedWeights ...

It imports torch and safetensors alone: a server needs this module on its path, and nothing else of
the trainer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

WEIGHTS = "model.safetensors"
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
        self._sum = 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Counts a tensor in."""
        about = f"{name} {tensor.dtype} {list(tensor.shape)} {_content(tensor)}"
        own = hashlib.blake2b(about.encode(), digest_size=8).digest()
        self._sum = (self._sum + int.from_bytes(own)) % 2**64

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
        """Sixteen hexadecimal digits."""
        return f"{self._sum:016x}"


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The digest of all tensors."""
    digest = Digest()
    for name, tensor in tensors:
        digest.add(name, tensor)
    return digest.value


class PushedWeights:
    """Extend vLLM's worker class (`worker_extension_cls`).

    A report is `{"step", "digest", "held"}`: the step and the digest of the tensors that the model
    was given last (None before the first push, and where a push failed), and the digest of the
    parameters that it computes with at this moment, in vLLM's own layout. `held` is None where
    kernels keep their own packed copy of a weight, as vLLM's for CPUs do.
    """

    model_runner: Any
    device: torch.device

    def take_weights(
        self,
        step: int,
        directory: str | None = None,
        tensors: Iterable[tuple[str, Tensor]] | None = None,
    ) -> dict[str, Any]:
        """Loads a checkpoint's tensors, given or in `directory`, and reports as above."""
        self.__dict__["rrgtrain_taken"] = None
        received = Digest()
        given = _tensors_in(Path(directory)) if directory is not None else tensors or ()
        worker: Any = self
        # read from a file they are on the CPU, whose one thread would take many times as long
        worker.reload_weights(weights_iterator=received.passing(given, self.device))
        self.__dict__["rrgtrain_taken"] = step, received.value
        return self.weights_taken()

    def weights_taken(self) -> dict[str, Any]:
        """Reports as above."""
        step, digest = self.__dict__.get("rrgtrain_taken") or (None, None)
        own = list(self.model_runner.get_model().named_parameters())
        packed = any(parameter.numel() == 0 for _, parameter in own)
        return {"step": step, "digest": digest, "held": None if packed else digest_of(own)}


def _tensors_in(directory: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(directory / WEIGHTS, "pt") as file:
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
