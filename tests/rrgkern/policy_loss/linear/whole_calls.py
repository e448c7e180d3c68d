"""Whole calls of the CUDA launchers at real sizes, on tensors that hold nothing.

    python -m tests.rrgkern.policy_loss.linear.whole_calls [rows ...]

prints a line of JSON for each mode and number of rows: the peak of bytes alive. It needs a process
without TRITON_INTERPRET, see `tests/rrgkern/aot/harness.py`.
"""

from __future__ import annotations

import json
import sys
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rrgkern import PolicyLoss
from rrgkern.logps import triton_tile
from rrgkern.ops import flatten
from rrgkern.policy_loss.inputs import PolicyInputs
from rrgkern.policy_loss.linear import op, triton_kernels
from rrgkern.policy_loss.linear.inputs import LinearInputs
from tests.rrgkern.aot.harness import recorded_launches

VOCABULARY, WIDTH = 151936, 2048
MODES = ("frozen_head", "grad_in_forward", "recompute")


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def problem(mode: str, rows: int, vocabulary: int = VOCABULARY) -> LinearInputs:
    """Dense bf16 rows under PPO's clip and a KL, ten sequences."""
    per_sequence, offsets = meta(10), meta(11, dtype=torch.int64)
    policy = PolicyInputs(
        *(per_sequence, offsets, per_sequence, meta(rows), meta(rows), *[None] * 4),
        *(False, False, PolicyLoss(beta=0.1).encode()),
    )
    return LinearInputs(
        *(meta(rows, WIDTH, dtype=torch.bfloat16), meta(vocabulary, WIDTH, dtype=torch.bfloat16)),
        *(None, meta(rows, dtype=torch.int64), policy, 1.0, 0.0, mode),
        *(True, mode != "frozen_head", False),
        entropy=False,
        all_metrics=True,
    )


def call(x: LinearInputs) -> None:
    """Forward, and the backward of "recompute" with a coefficient in every row."""
    forward = op._forward(triton_kernels.PLAN, *flatten(x))
    if x.mode != "recompute":
        return
    per_row = (forward.logps, forward.entropy, forward.shift, forward.lognorm)
    with pytest.MonkeyPatch.context() as patch:
        every = meta(len(x.hidden), 1, dtype=torch.int64)
        patch.setattr(torch.Tensor, "nonzero", lambda _: every)
        triton_tile.bwd(
            *(forward.coef, None, x.hidden, x.weight, None, x.targets, *per_row, 1.0, 0.0),
            *(True, True, False),
        )


def main(rows: list[int]) -> None:
    """Print the peak of each mode at each number of rows."""
    for n in rows:
        for mode in MODES:
            x = problem(mode, n)
            with recorded_launches(90), Alive() as alive:
                call(x)
            print(json.dumps([mode, n, alive.peak]))


# Count the bytes of tensors alive at every operation.
class Alive(TorchDispatchMode):
    """Bytes of the storages that operations made and that still live, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.peak = 0
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = {id_of(x) for x in tree_leaves((args, kwargs or {})) if torch.is_tensor(x)}
        if func is torch.ops.aten.addmm.dtype_out:
            # torch 2.11 has no such product without numbers; it makes nothing but `out`
            return kwargs["out"]
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if torch.is_tensor(leaf) and id_of(leaf) not in before | self.alive.keys():
                self._count(leaf)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self.alive[key] = size
        self.largest = max(self.largest, size)
        weakref.finalize(storage, self.alive.pop, key, None)
        self.peak = max(self.peak, sum(self.alive.values()))


def id_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [8192])
