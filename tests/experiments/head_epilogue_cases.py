"""Launches of the head with an epilogue by each card's tiles; run, it prints them as JSON.

For the harness of `tests/rrgkern/aot`. "lean" is a head with entropies; "rich" has a bias too and,
where the kernel serves one, a softcap; "plain" has none of these.
"""

from __future__ import annotations

import sys
from functools import partial

import torch
from torch import Tensor

from experiments.head_epilogue import TILES, Plan, head
from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats
from tests.rrgkern.aot.harness import Case, compile_cases, to_json

ROWS, WIDTH, VOCABULARY = 3277, 2048, 151936


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def launch(kernel: str, variant: str, cc: int) -> None:
    plan = Plan(TILES[cc][variant == "rich"], 132, 1 << 30, 33)
    rich, entropy = variant == "rich", variant != "plain"
    hidden, weight = (meta(n, WIDTH, dtype=torch.bfloat16) for n in (ROWS, VOCABULARY))
    bias = meta(VOCABULARY, dtype=torch.bfloat16) if rich else None
    softcap = 30.0 if rich and kernel != "exponentials" else 0.0
    x = FromHidden(hidden, weight, bias, meta(ROWS, dtype=torch.int64), 0.7, softcap, entropy)
    if kernel == "statistics":
        head.statistics(x, plan)
    elif kernel == "exponentials":
        head._exponentials(x, meta(ROWS), plan)
    else:
        stats = SoftmaxStats(*(meta(ROWS) for _ in range(4)))
        coefficients = Coefficients(meta(ROWS), meta(ROWS) if entropy else None)
        head._gradient_of_logits(x, stats, coefficients, plan)


CASES = {
    f"{cc} {kernel} {variant}": Case(partial(launch, kernel, variant, cc), False, matrix=True)
    for cc in TILES
    for kernel in ("statistics", "exponentials", "gradient")
    for variant in ("plain", "lean", "rich")[cc != 90 :]
}

if __name__ == "__main__":
    for cc in map(int, sys.argv[1:] or TILES):
        own = {(name, f"{name.split()[1]}_kernel") for name in CASES if name.startswith(f"{cc} ")}
        for made in compile_cases("tests.experiments.head_epilogue_cases", (cc,), own):
            print(to_json(made), flush=True)
