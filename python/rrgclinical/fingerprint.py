"""Digest the weights, settings and code that made a result; keys caches on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

# What every reading passes through, besides the folder of its reader.
_SHARED = (
    "cached.py",
    "common/tags.py",
    "entities.py",
    "inference.py",
    "labels.py",
    "rules/hyphens.py",
    "rules/lines.py",
    "rules/sentences.py",
    "rules/signs.py",
)


def fingerprint(modules: Iterable[nn.Module], *settings: object, reader: str) -> str:
    """32 hex digits of the modules' tensors (values, dtype, name), `settings` and `sources`.

    The device does not enter. About a second per GB.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for file in sources(reader):
        digest.update(f"{file.name} ".encode() + file.read_bytes())
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()[:32]


def sources(reader: str) -> list[Path]:
    """The files of this package that a reading depends on; `reader`: `__file__` of a reader."""
    root = Path(__file__).parent
    return [*sorted(Path(reader).parent.glob("*.py")), *(root / name for name in _SHARED)]
