"""Read a step's numbers from the device at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def read_at_once(*lists: Sequence[Tensor]) -> list[list[Tensor]]:
    """Copy the floating-point tensors of all lists to the host in one transfer.

    A read waits until the device has done all that it was given, and then the device waits for the
    host: so the numbers of a step are read together. Shapes stay; values come in the widest dtype
    among them, in which each is exact.
    """
    flat = [tensor.detach().flatten() for each in lists for tensor in each]
    if not flat:
        return [[] for _ in lists]
    parts = iter(torch.cat(flat).cpu().split([len(values) for values in flat]))
    return [[next(parts).view(tensor.shape) for tensor in each] for each in lists]
