"""Calls of any length, slice and temperature share one compiled kernel, whatever the room."""

from __future__ import annotations

import ast

import pytest

from tests.rrgkern.aot.harness import in_compiling_process

pytest.importorskip("triton")

COUNT = """
from dataclasses import replace
import torch
from rrgkern import PolicyLoss
from tests.rrgkern.advantages.aot_cases import groups
from tests.rrgkern.aot.harness import distinct_kernels
from tests.rrgkern.logps.aot_cases import backward, forward, slope, sweep
from tests.rrgkern.policy_loss.aot_cases import run, variant
from tests.rrgkern.policy_loss.from_logits import aot_cases as fused
from tests.rrgkern.policy_loss.linear.aot_cases import directing, rescaling, scaling, scaling_a_copy
from tests.rrgkern.preference_loss.aot_cases import step

V, bf16, SPEC = 151936, torch.bfloat16, variant("clip", "sequence")
# Each argument begins at an element of its size, so these are slices from 0, 1 and 3 among others.
SIZES = [1, 2, 3, 15, 16, 17, 19, 36, 64, 65, *range(100, 1000, 50)]
LONG = [*SIZES, 65536]

def of_policy(n):
    return PolicyLoss(beta=0.01 * n, eps_high=0.1 + n, entropy_coef=0.001 * n, kl_ratio_weight=True)

def of_sequences(i):
    return replace(
        SPEC, beta=0.01 * i, eps_high=0.1 + 0.01 * i, entropy_coef=0.001 * i, sampler_max=1.0 + i,
        dual_clip=2.0 + i,
    )

def fuse(n, v=V, spec=of_policy):
    fused.sweep(spec(n), vocabulary=v, rows=n, sequences=n // 9 + 1, temperature=0.5 + n / 700)

def prefer(n, masked=False):
    step(sequences=n, tokens=151 * n, tau=0.05 + n / 700, masked=masked)

def group(n, left=False):
    for members in (1, 4, 5):
        groups("sample", some_left_out=left, n_groups=n, members=members, eps=1e-6 * n)

MANY = {
    "advantages": (group, SIZES),
    "advantages, some left out": (lambda n: group(n, True), SIZES),
    "logps forward": (lambda n: forward(V, bf16, True, n, 0.5 + n / 700), LONG),
    "logps backward": (lambda n: backward(V, bf16, True, n, 0.5 + n / 700), LONG),
    "policy, lengths": (lambda n: run(SPEC, tokens=n, sequences=min(n, 2 + n // 9)), SIZES),
    "policy, numbers": (lambda n: run(of_sequences(n)), range(1, 26)),
    "fused": (fuse, LONG),
    "fused, 151665": (lambda n: fuse(n, 151665), LONG),
    "fused, 32001": (lambda n: fuse(n, 32001), LONG),
    "fused, factor": (lambda n: fused.factor(V, bf16, n), LONG),
    "linear, add_to_sums": (
        lambda n: sweep("add_to_sums", V, bf16, True, n, 0.5 + n / 700), SIZES[1:]
    ),
    "linear, exponentials": (
        lambda n: sweep("exponentials", V, bf16, True, n, 0.5 + n / 700), SIZES[1:]
    ),
    "linear, slope": (lambda n: slope(V, bf16, True, n, 0.5 + n / 700), SIZES[1:]),
    "linear, direction": (lambda n: directing(2048, bf16, n), SIZES[1:]),
    "linear, rescale": (lambda n: rescaling(2048, bf16, n), SIZES[1:]),
    "linear, scale": (lambda n: scaling(1, bf16, n), SIZES[1:]),
    "linear, scale a copy": (lambda n: scaling_a_copy(1, bf16, n), SIZES[1:]),
    "preference": (prefer, SIZES),
    "preference, masked": (lambda n: prefer(n, True), SIZES),
    # What does change a kernel is seen.
    "three deviations": (groups, ["none", "population", "sample"]),
    "with and without entropy": (lambda e: forward(V, bf16, e), [False, True]),
    "levels": (lambda level: run(variant("clip", level)), ["sequence", "token"]),
    "numbers that are 0": (lambda spec: fuse(1, spec=lambda _: spec), [of_policy(1), PolicyLoss()]),
    "last slice": (lambda last: slope(V, bf16, True, last=last), [False, True]),
    "masks": (lambda masked: step(masked=masked), [False, True]),
}
print({name: distinct_kernels([lambda x=x, call=call: call(x) for x in values])
       for name, (call, values) in MANY.items()})
"""
# Three passes of the policy loss and of the preference loss, of which one or two read the variant.
SEVERAL = {
    **dict.fromkeys(("policy, lengths", "policy, numbers", "preference", "preference, masked"), 3),
    **{"three deviations": 3, "with and without entropy": 2, "levels": 4, "numbers that are 0": 2},
    "masks": 5,
}


@pytest.mark.xdist_group("gigabytes")
@pytest.mark.slow
def test_calls_share_one_compilation() -> None:
    counts = ast.literal_eval(in_compiling_process("-c", COUNT))
    assert (
        counts == {name: SEVERAL.get(name, 1) for name in counts} and SEVERAL.keys() < counts.keys()
    )
