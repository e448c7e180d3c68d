"""Digest the weights and settings that made a result; keys caches on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import nn


def fingerprint(modules: Iterable[nn.Module], *settings: object) -> str:
    """32 hex digits of every tensor of the modules (values, dtype, name) and of `settings`.

    The device does not enter. About a second per GB.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()[:32]
