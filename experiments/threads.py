"""Compute on as many threads as the environment says, one by default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_of_environment() -> Iterator[None]:
    """Set torch's threads to OMP_NUM_THREADS, else 1, as a parent sets its children's.

    Sums depend on the number of threads; afterwards it is the caller's again.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        yield
    finally:
        torch.set_num_threads(before)
