"""Measure what is worth most in 8 minutes of a GPU.

    make bench ROOM=gpu-short

In this order, a row as soon as it is measured, nothing begun once the time is up:

    heads    `linear_token_logps` and its gradient at 8,192 and 32,768 positions, 40 % scored, 65 %
             of those active, frozen and trainable: by the card's tile, by 32 MiB, torch.compile
    logits   the policy loss of 8,192 rows out of place and in place
    steps    eight of paper/editgrpo by bench/gpu_step.py, with the time of a sampled token
    epilogue the four heads by `experiments.head_epilogue`, where it serves the card

Rows hold the summed time of kernels (`kernel_ms`), which knows no host, and the time between events
(`p50_ms`) with the host's share (`host_ms`).

    python -m bench.gpu_short --dry     the same way at a few rows on a CPU; the rows are deleted
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import psutil
import torch
from torch import Tensor

from bench import rows
from bench.timing import Rounds, device_state, kernel_figures, peak_mib, percentiles
from rrgkern import linear_token_logps, loss_scale, policy_loss_from_logits
from rrgkern.logps import triton_tile
from rrgkern.logps.head import BackwardRows, NeedsGrad, Tiling
from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients

SECONDS = 480
SMALL_TILE = 32 << 20
SCORED, ACTIVE, ROUNDS = 0.4, 0.65, 10
STEPS = ("--unsaved", "--steps", "8")


class Case(NamedTuple):
    """Hold what names a row, a call, its inputs, and what makes them anew."""

    row: dict[str, str]
    call: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    tiles: AbstractContextManager[Any] = nullcontext()
    fresh: Callable[..., tuple[Tensor, ...]] | None = None


def small_tiles(device: torch.device) -> AbstractContextManager[Any]:
    """Give the head tiles of 32 MiB meanwhile, on this card."""
    if device.type != "cuda":
        return nullcontext()
    share = torch.cuda.get_device_properties(device).total_memory // SMALL_TILE
    tiles = triton_tile.TILES
    small = Tiling(tiles.tiling.columns, tiles.tiling.elements, share)
    return patch.object(triton_tile, "TILES", tiles._replace(tiling=small))


def eager_logps(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Take log-probabilities as one writes them."""
    log_p = torch.log_softmax((hidden @ weight.T).float(), -1)
    return log_p.gather(-1, targets[:, None])[:, 0]


def our_logps(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Take them by this library."""
    return linear_token_logps(hidden, weight, targets).logps


def head_cases(device: torch.device, dry: bool) -> Iterator[Case]:
    """Yield the four heads with each tile and compiled."""
    width, vocabulary = (16, 97) if dry else (2048, 151936)
    compiled = eager_logps if dry else torch.compile(eager_logps, dynamic=False)
    weights = torch.randn(vocabulary, width, device=device).bfloat16() / width**0.5
    for positions in (20, 40) if dry else (8192, 32768):
        count = round(SCORED * positions)
        hidden = torch.randn(count, width, device=device).bfloat16().requires_grad_()
        targets = torch.randint(vocabulary, (count,), device=device)
        coef = (torch.arange(count, device=device) < round(ACTIVE * count)).float()
        for frozen in (True, False):
            weight = weights.clone().requires_grad_(not frozen)
            inputs = [hidden] if frozen else [hidden, weight]
            case = f"{positions} positions, {'frozen' if frozen else 'trainable'}"
            for provider, logps, tiles in (
                ("rrgkern", our_logps, nullcontext()),
                ("rrgkern, tiles of 32 MiB", our_logps, small_tiles(device)),
                ("torch.compile", compiled, nullcontext()),
            ):
                row = {"room": "logps", "case": f"short, {case}", "provider": provider}

                def call(
                    h: Tensor,
                    w: Tensor,
                    t: Tensor,
                    c: Tensor,
                    logps: Callable[..., Tensor] = logps,
                    inputs: list[Tensor] = inputs,
                ) -> object:
                    return torch.autograd.grad(logps(h, w, t), inputs, c)

                yield Case(row, call, (hidden, weight, targets, coef), tiles)


def epilogue_cases(device: torch.device, dry: bool) -> Iterator[Case]:
    """Yield the heads by products with an epilogue; none where no card serves."""
    from experiments import head_epilogue  # needs Triton

    heads = (case for case in head_cases(device, dry) if case.row["provider"] == "rrgkern")
    for case in heads:
        frozen = not case.inputs[1].requires_grad
        hidden, weight, targets, coef = (t.detach() for t in case.inputs)
        x = FromHidden(hidden, weight, None, targets, 1.0, 0.0, False)
        plan = head_epilogue.choose(head_epilogue.Card.of(device), x)
        if plan is None:
            print(f"{case.row['case']}: the head of tiles is chosen here")
            continue

        def call(
            *inputs: Tensor,
            x: FromHidden = x,
            coef: Tensor = coef,
            plan: Any = plan,
            needs: NeedsGrad = NeedsGrad(hidden=True, weight=not frozen, bias=False),  # noqa: B008
        ) -> object:
            stats = head_epilogue.statistics(x, plan)
            rows = BackwardRows(x.hidden, x.targets, stats, Coefficients(coef, None))
            return head_epilogue.gradients(rows, x, needs, plan)

        row = case.row | {"provider": "product with its own epilogue"}
        yield Case(row, call, case.inputs)


def logits_cases(device: torch.device, dry: bool) -> Iterator[Case]:
    """Yield the policy loss of logits out of place and in place."""
    count, vocabulary = (32, 97) if dry else (8192, 151936)
    leaf = torch.randn(count, vocabulary, device=device).bfloat16().requires_grad_()
    offsets = torch.arange(0, count + 1, 16, device=device)
    targets = torch.randint(vocabulary, (count,), device=device)
    scale, old = loss_scale("grpo", offsets), torch.full((count,), -12.0, device=device)
    advantages = torch.randn(count // 16, device=device)
    for provider in ("out of place", "in place"):
        inplace = provider == "in place"
        row = {"room": "policy_loss_from_logits", "case": "short, dense", "provider": provider}

        def call(logits: Tensor, inplace: bool = inplace) -> object:
            batch = (logits, targets, advantages, offsets)
            loss = policy_loss_from_logits(*batch, scale=scale, old=old, inplace=inplace).loss
            return torch.autograd.grad(loss, logits)

        yield Case(row, call, (leaf,), fresh=lambda logits: (logits * 1.0,))


def measure(case: Case, device: torch.device) -> dict[str, Any]:
    """Time one call by kernels, events and the host; measure its peak of memory."""
    call, fresh = case.call, case.fresh

    def inputs() -> tuple[Tensor, ...]:
        return case.inputs if fresh is None else fresh(*case.inputs)

    call(*inputs())  # compiles
    figures = kernel_figures(call, inputs())
    rounds = Rounds({"call": call}, [case.inputs], {} if fresh is None else {"call": fresh})
    for _ in range(ROUNDS):
        rounds()
    return {
        **figures,
        **{f"{name}_ms": ms for name, ms in percentiles(rounds.milliseconds["call"]).items()},
        "host_ms": percentiles(rounds.host["call"])["p50"],
        "peak_mib": peak_mib(call, case.inputs, fresh),
        "device_state": device_state(device),
    }


def measure_all(
    kinds: tuple[Callable[..., Iterator[Case]], ...], device: torch.device, dry: bool, until: float
) -> bool:
    """Measure and append a row a case; False once the time is up."""
    with tempfile.TemporaryDirectory() as deleted:
        folder = Path(deleted) if dry else rows.RESULTS
        for cases in kinds:
            for case in cases(device, dry):
                named = f"{case.row['case']}, {case.row['provider']}"
                if time.monotonic() > until:
                    print(f"{SECONDS} s are up before {named}")
                    return False
                with case.tiles:
                    row = case.row | measure(case, device)
                rows.append(device, row | {"versions": rows.versions()}, folder)
                print(f"{named}: {row['kernel_ms']:.2f} ms of kernels", flush=True)
                del case
    return True


def main(arguments: list[str]) -> int:
    """Measure and append rows until the time is up; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_short", description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="a few rows on a CPU, nothing kept")
    dry = parser.parse_args(arguments).dry
    if not dry and not torch.cuda.is_available():
        print("no GPU here: wanted a CUDA device; rehearse with --dry")
        return 2
    until, device = time.monotonic() + SECONDS, torch.device("cpu" if dry else "cuda")
    if not measure_all((head_cases, logits_cases), device, dry, until):
        return 1
    command = [sys.executable, str(rows.ROOT / "bench" / "gpu_step.py"), *STEPS]
    if dry:
        measure_all((epilogue_cases,), device, dry, until)
        print(f"would run {' '.join(command[1:])}")
        return 0
    torch.cuda.empty_cache()  # for the steps, in a process of their own
    process = psutil.Popen(command)
    try:
        status = int(process.wait(max(0, until - time.monotonic())))
    except psutil.TimeoutExpired:
        everyone = [process, *process.children(recursive=True)]  # workers lead their own sessions
        for each in everyone:
            each.kill()
        psutil.wait_procs(everyone)
        print(f"{SECONDS} s are up before the last of eight steps")
        return 1
    measure_all((epilogue_cases,), device, dry, until)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
