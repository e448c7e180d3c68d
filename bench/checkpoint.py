"""Measure how long a checkpoint holds a step, written in it and beside the training.

    python -m bench.checkpoint --mib 100 --pairs 5 [--device cuda]

A policy of linear layers of `--mib` MiB in fp32 and its AdamW moments, thrice that in all, are
written by the trainer's own store. Both kinds alternate in one process, and a step without a
checkpoint is timed between them. A step is held by what it takes longer than that one; a write in
the background also slows the steps behind it, which is the second column: all that the steps until
the end of the write took longer.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rrgtrain.state.store import CheckpointStore

WIDTH = 1024


class Training:
    """Steps of AdamW on a stack of linear layers, and their state."""

    def __init__(self, mib: float, device: str) -> None:
        layers = max(1, round(mib * 2**20 / (4 * WIDTH * WIDTH)))
        self.device = device
        self.model = torch.nn.Sequential(
            *(torch.nn.Linear(WIDTH, WIDTH, device=device) for _ in range(layers))
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.inputs = torch.randn(256, WIDTH, device=device)

    def step(self) -> None:
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.device == "cuda":
            torch.cuda.synchronize()

    def state(self) -> dict[str, Any]:
        return {
            "weights": dict(self.model.named_parameters()),
            "optimizer": self.optimizer.state_dict(),
        }


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(words: list[str] | None = None) -> int:
    """Print one line for each kind of write, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=float, default=100.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--directory", help="where the checkpoints lie; a temporary one by default")
    options = parser.parse_args(words)
    training = Training(options.mib, options.device)
    held: dict[str, list[float]] = {"sync": [], "async": []}
    slowed: dict[str, list[float]] = {"sync": [], "async": []}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        store = CheckpointStore(Path(directory) / "resume", 1)
        for number in range(-1, options.pairs):  # the first pair warms up
            for kind, write in (("sync", store.save), ("async", store.begin)):
                plain = statistics.median(seconds(training.step) for _ in range(3))
                hold = seconds(lambda: write("step", training.state()))  # noqa: B023
                took = [seconds(training.step)]
                while store.writing:
                    took.append(seconds(training.step))
                store.wait()
                if number >= 0:
                    held[kind].append(hold)
                    slowed[kind].append(hold + sum(took) - plain * len(took))
        written = store.bandwidth.bytes / 2**20 if store.bandwidth else 0.0
    print(f"{written:.0f} MiB written, step {plain:.3f} s, {options.device}, medians of pairs")
    for kind in held:
        hold, slow = statistics.median(held[kind]), statistics.median(slowed[kind])
        print(f"{kind:5}  held {hold:7.3f} s  with the steps behind it {slow:7.3f} s")
    ratio = statistics.median(a / b for a, b in zip(held["async"], held["sync"], strict=True))
    print(f"async / sync: {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
