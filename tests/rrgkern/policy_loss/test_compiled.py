"""What the assembler makes of the passes, and how often they are compiled."""

from __future__ import annotations

import pytest

from tests.rrgkern.aot.harness import compiled, in_compiling_process

pytest.importorskip("triton")
CASES = "tests.rrgkern.policy_loss.aot_cases"

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

whole = [tokens(16 * n, 2 + n) for n in range(1, 26)]
odd = [tokens(16 * n + 5, 2 + n) for n in range(1, 26)]
print(distinct_kernels(whole), distinct_kernels(odd))
print(distinct_kernels([numbers(i) for i in range(1, 26)]))
print(distinct_kernels([numbers(1), lambda: run(variant("clip", "token"))]))
"""


@pytest.mark.slow
def test_lengths_and_numbers_share_one_compilation() -> None:
    # Three passes each; token counts divisible by 16 are one compilation, others another. The
    # finish does not depend on the variant.
    assert in_compiling_process("-c", COUNT).split() == ["3", "3", "3", "4"]


@pytest.mark.slow
def test_the_token_pass_reads_pairs_and_half_of_the_warps_fit() -> None:
    passes = [k for k in compiled(CASES) if k.kernel == "policy_loss_token_kernel"]
    assert passes
    for kernel in passes:
        wide = kernel.assembly.load_bits.get(64, 0)
        # logp, old, reference, sampler, weight and entropy where given, beside the bisection
        assert wide >= (2 if kernel.case == "on-policy" else 7), kernel
        assert kernel.occupancy >= 0.5, kernel
