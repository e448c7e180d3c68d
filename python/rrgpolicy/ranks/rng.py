"""The random states of a process, taken and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Python's, NumPy's and PyTorch's global generators, as data that a checkpoint can hold.

    The trainer's own draws (order of studies, rollouts, edits) depend on seeds and steps alone;
    dropout, and rewards or algorithms of the user's, draw from these.
    """
    kind, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (
            kind,
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            place,
            has_gauss,
            gauss,
        ),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Puts back what `random_states` took; CUDA generators where there are as many devices."""
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
    kind, keys, place, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has_gauss, gauss))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put back all generators at the end of the block."""
    before = random_states()
    try:
        yield
    finally:
        set_random_states(before)
