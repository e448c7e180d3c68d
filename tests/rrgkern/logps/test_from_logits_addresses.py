"""Offsets past 2^31 elements, and launches that must share one compiled kernel.

The logits lie in an allocation whose pages are never touched outside the few rows in use: the
arithmetic is that of a batch of many gigabytes, the memory is not.
"""

from __future__ import annotations

import pytest
import torch

from rrgkern.logps import triton_from_logits
from tests.rrgkern.aot.harness import in_compiling_process
from tests.rrgkern.aot.mutated import passes
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_logits_oracle import Outcome, check, problem

# On a GPU each takes up to 8 GiB, and a process keeps what it has taken: one of them takes all.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.xdist_group("gigabytes"),
]

# Three rows this far apart: the third begins 2^31 elements after the first.
FAR_APART = 2**30


def far_rows(vocabulary: int) -> torch.Tensor:
    storage = torch.empty(2 * FAR_APART + vocabulary, dtype=torch.bfloat16, device=DEVICE)
    return storage.as_strided((3, vocabulary), (FAR_APART, 1))


def far_columns(rows: int) -> torch.Tensor:
    storage = torch.empty(2 * FAR_APART + rows, dtype=torch.bfloat16, device=DEVICE)
    return storage.as_strided((rows, 3), (1, FAR_APART))


def check_far_logits(layout: str) -> None:
    """Raise unless both kernels are right where the last row, or column, is far away."""
    given = problem(3, 3 if layout == "columns" else 40, dtype=torch.bfloat16)
    logits = far_columns(3) if layout == "columns" else far_rows(40)
    logits.copy_(given.logits)
    walked = logits[:, None] if layout == "batches" else logits
    arguments = (given.targets, given.temperature)
    stats = triton_from_logits.token_logps_fwd(walked, *arguments, True)
    rest = (given.coef, given.coef_entropy, walked, given.targets, *stats, given.temperature)
    gradient = triton_from_logits.token_logps_bwd(*rest)
    check(Outcome(stats[0], stats[1], gradient.view(given.logits.shape)), given)
    triton_from_logits.token_logps_bwd_(*rest)
    assert torch.equal(logits, gradient.view(given.logits.shape))


@pytest.mark.parametrize("layout", ["rows", "columns", "batches"])
def test_logits_past_two_to_the_31(layout):
    check_far_logits(layout)


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.skipif(DEVICE != "cpu", reason="a wild address ends the CUDA context")
@pytest.mark.parametrize(
    ("module", "wide"),
    [
        (triton_from_logits, "row = tl.program_id(0).to(tl.int64)"),
        (triton_from_logits, "row = (tl.program_id(0) // BLOCKS).to(tl.int64)"),
    ],
)
def test_without_64_bits_the_far_row_is_missed(module, wide):
    narrow = wide.replace(".to(tl.int64)", "")
    assert not passes(module, wide, narrow, f"{__name__}.check_far_logits", "rows")


def test_gradient_past_two_to_the_31(monkeypatch):
    given = problem(3, 40, dtype=torch.bfloat16)
    stats = triton_from_logits.token_logps_fwd(given.logits, given.targets, given.temperature, True)
    gradient = far_rows(40)
    kernel = triton_from_logits.token_logps_bwd_kernel
    stride_argument, gradient_argument = (
        kernel.arg_names.index(name) for name in ("gradient_row_stride", "gradient_ptr")
    )

    class WithFarGradient:
        def __getitem__(self, grid):
            def launch(*arguments, **options):
                arguments = list(arguments)
                arguments[gradient_argument] = gradient
                arguments[stride_argument] = FAR_APART
                kernel[grid](*arguments, **options)

            return launch

    monkeypatch.setattr(triton_from_logits, "token_logps_bwd_kernel", WithFarGradient())
    triton_from_logits.token_logps_bwd(
        *(given.coef, given.coef_entropy, given.logits, given.targets, *stats, given.temperature)
    )
    check(Outcome(stats[0], stats[1], gradient), given)


COUNT = """
import torch
from tests.rrgkern.aot.harness import distinct_kernels
from tests.rrgkern.logps.aot_cases import backward, forward

lengths = [1, 2, 16, 17, 64, 65, 65536, *range(100, 1000, 20)]
for call in (forward, backward):
    print(distinct_kernels([
        lambda rows=rows: call(151936, torch.bfloat16, True, rows, 0.5 + rows / 700)
        for rows in lengths
    ]))
print(distinct_kernels([lambda e=e: forward(151936, torch.bfloat16, e) for e in (False, True)]))
"""


@pytest.mark.slow
def test_lengths_and_temperatures_share_one_compilation():
    assert in_compiling_process("-c", COUNT).split() == ["1", "1", "2"]
