"""Test the number of compilations of the passes."""

from __future__ import annotations

import pytest

from tests.rrgkern.aot.harness import in_compiling_process

pytest.importorskip("triton")

COUNT = """
from dataclasses import replace
from rrgkern import PolicyLoss
from tests.rrgkern.aot.harness import distinct_kernels
from tests.rrgkern.policy_loss.aot_cases import run, variant

def tokens(n, s):
    return lambda: run(variant("clip", "sequence"), tokens=n, sequences=s)

def numbers(i):
    spec = replace(
        variant("clip", "sequence"), beta=0.01 * i, eps_high=0.1 + 0.01 * i, entropy_coef=0.001 * i,
        sampler_max=1.0 + i, dual_clip=2.0 + i,
    )
    return lambda: run(spec)

lengths = [1, 2, *(16 * n for n in range(1, 26)), *(16 * n + 5 for n in range(1, 26))]
print(distinct_kernels([tokens(n, min(n, 2 + n // 9)) for n in lengths]))
print(distinct_kernels([numbers(i) for i in range(1, 26)]))
print(distinct_kernels([numbers(1), lambda: run(variant("clip", "token"))]))
"""


@pytest.mark.slow
def test_lengths_and_numbers_share_one_compilation() -> None:
    # Three passes each, whatever the number of tokens. The finish does not depend on the variant.
    assert in_compiling_process("-c", COUNT).split() == ["3", "3", "4"]
