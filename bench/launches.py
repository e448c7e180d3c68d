"""Count what one call of a head or a loss launches: `python -m bench.launches [--json]`.

Needs Triton and no GPU. CUDA's launchers run on CPU tensors of real row counts and a width of 8.
Triton's own `run` binds, specialises and looks up each launch; the kernel behind it is empty, and
products return at once. So the time is Python's and the dispatcher's, without the driver's.

launches: products, and Triton's of what a case names, forward and backward. policy_loss: those of
the loss that a head ends in, beside them. waits: reads for which a host waits on its device.
dispatched: ops that go by the dispatcher.
host_us: processor time of a call. beyond_us: how much longer than over 64 columns, one slice.
Log-probabilities have 8,192 or 32,768 positions, 40 % scored, 65 % of those active.
With --json one line {case: {"launches": n, ...}}.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "0"  # before triton is imported

import torch
from torch import Tensor
from torch.library import CustomOpDef
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import rrgkern
from rrgkern import dispatch, loss_scale
from rrgkern.logps.online_softmax import Coefficients

VOCABULARY, ONE_SLICE, WIDTH = 151936, 64, 8
GROUPS, MEMBERS, POSITIONS = 64, 8, 8192
SCORED, ALIVE, CALLS = 0.4, 0.65, 7  # shares of positions, and of groups with an advantage
COUNTED = ("triton", "products", "policy_loss", "waits", "dispatched")
FROM_LOGITS = ("out of place", "in place", "two rooms", "eager")
BLOCKING = ("nonzero", "tolist", "item", "__bool__", "__int__", "__float__")
Call = Callable[[], object]
counts: collections.Counter[str] = collections.Counter()


def _counted(name: str, of: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        counts[name] += 1
        return of(*arguments, **options)

    return call


TARGET = GPUTarget("cuda", 90, 32)
DRIVER = {"device": lambda: 0, "stream": lambda _: 0, "target": lambda: TARGET}
NOTHING = {"function": None, "packed_metadata": None, "launch_metadata": lambda *_: None}
LOSS = ("rrgkern.policy_loss.triton_passes", "rrgkern.triton_lib.policy_sums")


def _not_compiled(function: Any, key: str, signature: Any, device: int, *_: Any) -> Any:
    run = _counted("policy_loss" if function.__module__ in LOSS else "triton", lambda *_: None)
    return function.device_caches[device][0].setdefault(key, SimpleNamespace(**NOTHING, run=run))


@contextmanager
def standin() -> Iterator[None]:
    """Serve CPU tensors by what serves CUDA, without kernels and products."""
    driver.set_active(SimpleNamespace(**{f"get_current_{k}": v for k, v in DRIVER.items()}))
    replaced: list[tuple[Any, str, Any]] = [
        *((torch, n, _counted("products", lambda *_, out, **__: out)) for n in ("mm", "addmm")),
        *((Tensor, name, _counted("waits", getattr(Tensor, name))) for name in BLOCKING),
        (JITFunction, "_do_compile", _not_compiled),
        (CustomOpDef, "__call__", _counted("dispatched", CustomOpDef.__call__)),
    ]
    for module in [m for name, m in sys.modules.items() if name.startswith("rrgkern.")]:
        if hasattr(module, "values_may_be_read"):  # on CUDA a device asserts what they are
            replaced.append((module, "values_may_be_read", lambda *_: False))
        for op in [x for x in vars(module).values() if isinstance(x, CustomOpDef)]:
            if "cuda" in op._backend_fns and dispatch._kernels.pop((op._qualname, "cpu"), None):
                op.register_kernel("cpu")(op._backend_fns["cuda"])
                if op._qualname.startswith("rrgkern::policy_loss_from_logits"):  # go direct on CUDA
                    of_cuda = dispatch._kernels[op._qualname, "cuda"]
                    dispatch._kernels[op._qualname, "cpu"] = of_cuda
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        yield


def head_logps(positions: int, frozen: bool, vocabulary: int) -> Call:
    """Return the call of `linear_token_logps` and its gradient."""
    rows = round(SCORED * positions)
    hidden = torch.randn(rows, WIDTH).bfloat16().requires_grad_()
    weight = torch.randn(vocabulary, WIDTH).bfloat16().requires_grad_(not frozen)
    targets = torch.randint(vocabulary, (rows,))
    coef = (torch.arange(rows) < round(ALIVE * rows)).float()
    inputs = [hidden] if frozen else [hidden, weight]
    return lambda: torch.autograd.grad(
        rrgkern.linear_token_logps(hidden, weight, targets).logps, inputs, coef
    )


def head_loss(domain: bool, mode: str, vocabulary: int) -> Call:
    """Return the call of `linear_policy_loss` and its gradient."""
    length = POSITIONS // (GROUPS * MEMBERS)
    offsets = torch.arange(0, POSITIONS + 1, length)
    mask = torch.arange(POSITIONS) % length >= round((1 - SCORED) * length) if domain else None
    hidden = torch.randn(POSITIONS, WIDTH).bfloat16().requires_grad_()
    weight = torch.randn(vocabulary, WIDTH).bfloat16().requires_grad_()
    advantages = torch.ones(GROUPS, MEMBERS)
    advantages[: round((1 - ALIVE) * GROUPS) if domain else 0] = 0
    targets = torch.randint(vocabulary, (POSITIONS,))
    batch = (hidden, weight, targets, advantages.flatten(), offsets)
    options = {"old": torch.full((POSITIONS,), -11.9), "mask": mask, "mode": mode}
    options["scale"] = loss_scale("grpo", offsets, mask=mask)
    live = advantages.flatten().repeat_interleave(length) != 0
    live &= live if mask is None else mask

    def call() -> object:
        # The loss's kernels wrote no coefficient; clipped is no token.
        with patch.object(Coefficients, "active", lambda _: live):
            loss = rrgkern.linear_policy_loss(*batch, **options).loss
            return torch.autograd.grad(loss, [hidden, weight])

    return call


def logits_loss(kind: str, _: int) -> Call:
    """Return the call of a policy loss from logits and its gradient."""
    rows = vocabulary = 64
    offsets, targets = torch.arange(0, rows + 1, 8), torch.randint(vocabulary, (rows,))
    advantages, old = torch.ones(8), torch.full((rows,), -4.0)
    scale = loss_scale("grpo", offsets)
    leaf = torch.randn(rows, vocabulary, dtype=torch.bfloat16, requires_grad=True)
    options: dict[str, Any] = {"scale": scale, "old": old}

    def call() -> object:
        logits = leaf * 1.0 if kind == "in place" else leaf
        if kind == "two rooms":
            logps = rrgkern.token_logps(logits, targets).logps
            loss = rrgkern.policy_loss(logps, advantages, offsets, **options).loss
        elif kind == "eager":
            logps = torch.log_softmax(logits.float(), -1).gather(-1, targets[:, None])[:, 0]
            ratio, weighed = (logps - old).exp(), (advantages * scale).repeat_interleave(8)
            loss = -torch.minimum(ratio * weighed, ratio.clamp(0.8, 1.2) * weighed).sum()
        else:
            batch, options["inplace"] = (logits, targets, advantages, offsets), kind == "in place"
            loss = rrgkern.policy_loss_from_logits(*batch, **options).loss
        return torch.autograd.grad(loss, logits)

    return call


CASES: dict[str, tuple[Callable[..., Call], tuple[Any, ...]]] = {
    "logps 8k frozen": (head_logps, (8192, True)),
    "logps 8k trainable": (head_logps, (8192, False)),
    "logps 32k frozen": (head_logps, (32768, True)),
    "logps 32k trainable": (head_logps, (32768, False)),
    "loss dense grad_in_forward": (head_loss, (False, "grad_in_forward")),
    "loss dense recompute": (head_loss, (False, "recompute")),
    "loss domain grad_in_forward": (head_loss, (True, "grad_in_forward")),
    "loss domain recompute": (head_loss, (True, "recompute")),
    **{f"logits {kind}": (logits_loss, (kind,)) for kind in FROM_LOGITS},
}


def host_us(call: Call) -> float:
    """Return the median processor time of a call, in microseconds."""
    return median(timeit.repeat(call, timer=time.process_time_ns, repeat=CALLS, number=1)) / 1e3


def measure(case: str) -> dict[str, float]:
    """Count one call of a case and time some."""
    make, arguments = CASES[case]
    call = make(*arguments, VOCABULARY)
    call()
    counts.clear()
    call()
    row: dict[str, float] = {name: counts[name] for name in COUNTED}
    row = {"launches": row["triton"] + row["products"], **row, "host_us": host_us(call)}
    if make is logits_loss:  # which is nothing else
        row["launches"] += row["policy_loss"]
        return row
    return row | {"beyond_us": row["host_us"] - host_us(make(*arguments, ONE_SLICE))}


def main(arguments: list[str]) -> None:
    """Print all cases as JSON, on one line with --json."""
    if arguments not in ([], ["--json"]):
        sys.exit(f"{' '.join(arguments)}: wanted nothing or --json")
    torch.set_num_threads(1)
    with standin():
        measured = {case: measure(case) for case in CASES}
    print(json.dumps(measured, indent=None if arguments else 1))


if __name__ == "__main__":
    main(sys.argv[1:])
