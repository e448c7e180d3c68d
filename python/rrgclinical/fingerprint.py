"""Digest the weights, settings and code that made a result; keys caches on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

# What every reading passes through, besides the folders of its reader and of the rules, whose words
# tell which hyphens part one.
_SHARED = (
    *("cached.py", "common/rtf.py", "common/tags.py"),
    *("entities.py", "inference.py", "labels.py"),
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
    folders = dict.fromkeys((Path(reader).parent, root / "rules"))
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    return [*files, *(root / name for name in _SHARED)]
