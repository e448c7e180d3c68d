"""Rows past 2^31 elements, a kernel whose 64-bit offsets are taken away, and shared compilations.

The logits lie in an allocation whose pages are never touched outside the few rows in use, and the
gradient is written over them: reads and writes of a batch of many gigabytes, without its memory.
"""

from __future__ import annotations

import pytest
import torch

from rrgkern.policy_loss.from_logits import triton_kernels
from rrgkern.policy_loss.from_logits.op import policy_loss_from_logits_fwd_
from tests.rrgkern.aot.harness import in_compiling_process
from tests.rrgkern.aot.mutated import passes
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.from_logits.cases import (
    EVERYTHING,
    Outcome,
    arguments,
    check,
    problem,
)

# On a GPU each takes up to 8 GiB, and a process keeps what it has taken: one of them takes all.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.xdist_group("gigabytes"),
]
# Three rows this far apart: the third begins 2^31 elements after the first.
FAR_APART = 2**30


def check_far_rows(layout: str) -> None:
    """Raise unless loss and gradient are right where the last row, or column, is far away."""
    given = problem(0, 3 if layout == "columns" else 40, dtype=torch.bfloat16, lengths=(2, 1))
    given = given._replace(data=given.data.changed(mask=None))
    shape = given.logits.shape
    storage = torch.empty(2 * FAR_APART + 40, dtype=torch.bfloat16, device=DEVICE)
    strides = (1, FAR_APART) if layout == "columns" else (FAR_APART, 1)
    logits = storage.as_strided(shape, strides).copy_(given.logits)
    walked = logits[:, None] if layout == "batches" else logits
    loss, active, metrics = policy_loss_from_logits_fwd_(walked, *arguments(given, EVERYTHING)[1:])
    check(Outcome(loss, logits.clone(), active, metrics), given, EVERYTHING)


@pytest.mark.parametrize("layout", ["rows", "columns", "batches"])
def test_logits_and_gradient_past_two_to_the_31(layout: str) -> None:
    check_far_rows(layout)


WIDE_ROW = "row = tl.program_id(0).to(tl.int64)\n    batch ="
CHECK = f"{__name__}.check_far_rows"


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.skipif(DEVICE != "cpu", reason="a wild address ends the CUDA context")
def test_without_64_bits_the_far_row_is_missed() -> None:
    assert passes(triton_kernels, WIDE_ROW, WIDE_ROW, CHECK, "rows")
    narrow = WIDE_ROW.replace(".to(tl.int64)", "")
    assert not passes(triton_kernels, WIDE_ROW, narrow, CHECK, "rows")


COUNT = """
import torch
from tests.rrgkern.aot.harness import distinct_kernels
from tests.rrgkern.policy_loss.from_logits.aot_cases import EVERYTHING, factor, sweep
from rrgkern import PolicyLoss

lengths = [1, 2, 16, 17, 65536, *range(100, 1000, 20)]

def calls(vocabulary, spec):
    return [
        lambda n=n: sweep(
            spec(n), vocabulary=vocabulary, rows=n, sequences=n // 9 + 1, temperature=0.5 + n / 700
        )
        for n in lengths
    ]

def numbers(n):
    return PolicyLoss(beta=0.01 * n, eps_high=0.1 + n, entropy_coef=0.001 * n, kl_ratio_weight=True)

print(*(distinct_kernels(calls(v, numbers)) for v in (151936, 151665, 32001)))
print(distinct_kernels([lambda n=n: factor(151936, torch.bfloat16, n) for n in lengths]))
print(distinct_kernels([*calls(151936, numbers)[:1], *calls(151936, lambda n: PolicyLoss())[:1]]))
"""


@pytest.mark.slow
def test_lengths_temperatures_and_numbers_share_one_compilation() -> None:
    assert in_compiling_process("-c", COUNT).split() == ["1", "1", "1", "1", "2"]
