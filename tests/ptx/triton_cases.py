"""A case and mutants of each Triton kernel, for a process in which `on_ptx` has taken over.

    python -m tests.ptx.triton_cases [case ...]

prints a line of JSON for each case and each mutant: the kernel, what was done to it, and how it
ended: "equal", or the kind of the error. `test_triton.py` reads them.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

from tests.ptx import on_ptx  # first: it decides how Triton is imported

# isort: split
import pytest
import torch

from rrgkern import PolicyLoss, group_advantages
from rrgkern.advantages.op import group_advantages_op
from rrgkern.policy_loss.from_logits.op import policy_loss_from_logits_scale_
from rrgkern.policy_loss.op import policy_loss_fwd
from rrgkern.preference_loss.op import preference_loss_fwd
from tests.mutants import faults
from tests.ptx import numbers
from tests.ptx.parse import Kernel, PtxError
from tests.ptx.program import Block, program
from tests.rrgkern.logps import from_hidden_oracle, from_logits_oracle
from tests.rrgkern.logps.from_hidden_oracle import check_tile
from tests.rrgkern.logps.test_from_logits_accuracy import through_op
from tests.rrgkern.policy_loss import cases as policy_cases
from tests.rrgkern.policy_loss.cases import check_fp32
from tests.rrgkern.policy_loss.from_logits import cases as from_logits_cases
from tests.rrgkern.policy_loss.from_logits import test_kernel as from_logits_kernel
from tests.rrgkern.policy_loss.linear import cases as linear_cases
from tests.rrgkern.policy_loss.linear.conftest import shrink_triton
from tests.rrgkern.preference_loss import test_kernel as preference_kernel
from tests.rrgkern.shared_prefix import test_decode
from tests.triton_functions import triton_functions

VOCABULARY = 5001  # two blocks of fp32 a row and the beginning of a third, rows unaligned


def from_logits(
    dtype: torch.dtype = torch.float32, vocabulary: int = VOCABULARY, rows: int = 4
) -> None:
    given = from_logits_oracle.problem(rows, vocabulary, dtype=dtype)
    together = through_op(given, True)
    # A row of few columns leans on single exponentials more than eager's yardstick allows for.
    from_logits_oracle.check(together, given, exponential_ulps=2 if vocabulary < 100 else 0)
    # A row has the same bits alone.
    one = from_logits_oracle.Problem(*(part[2:3] for part in given[:-1]), given.temperature)
    for part, whole in zip(through_op(one, True), together, strict=True):
        assert torch.equal(part[0], whole[2])


def from_hidden() -> None:
    given = from_hidden_oracle.problem(5, 16, 301, bias=True, temperature=0.6, softcap=4.0)
    # The interpreter's exponentials err by the two units that the manual allows, and the logits
    # between the kernels are those of this CPU: a row came to seven units on one of them.
    from_hidden_oracle.check(from_hidden_oracle.ours(given), given, roundings=6)


def policy(level: str = "sequence", surrogate: str = "clip") -> None:
    spec = PolicyLoss(surrogate=surrogate, ratio_level=level, beta=0.1, sampler_level="sequence")
    data = policy_cases.batch(3, lengths=(70, 0, 1, 130))
    check_fp32(spec, data, policy_loss_fwd(*data.to(torch.float32).arguments(spec)))


def policy_from_logits(
    dtype: torch.dtype = torch.float32,
    vocabulary: int = VOCABULARY,
    lengths: tuple[int, ...] = (2, 0, 3),
    kernels: tuple[Callable[..., from_logits_cases.Outcome], ...] = (
        from_logits_kernel.through_op,
        from_logits_kernel.in_place,
    ),
) -> None:
    given = from_logits_cases.problem(lengths=lengths, vocabulary=vocabulary, dtype=dtype)
    for kernel in kernels:
        from_logits_cases.check(
            kernel(given, from_logits_cases.EVERYTHING), given, from_logits_cases.EVERYTHING
        )


def upstream() -> None:
    gradient = torch.randn(3, VOCABULARY)
    active = torch.tensor([True, False, True])
    expected = torch.where(active[:, None], gradient * -3, 0 * gradient)
    gradient[1] = 0
    policy_loss_from_logits_scale_(gradient, active, torch.tensor(-3.0))
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


def scaled() -> None:
    """A whole block of numbers and the beginning of a second."""
    gradient, rest = torch.randn(1500), [torch.randn(0), torch.randn(0)]
    expected = gradient * -3
    torch.ops.rrgkern.linear_policy_loss_scale_(torch.tensor(-3.0), gradient, *rest)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


def linear(mode: str) -> None:
    given = linear_cases.problem(PolicyLoss(beta=0.1), bias=True).to(torch.float32)
    frozen = mode == "frozen_head"
    found = linear_cases.ours(given, mode, frozen=frozen, upstream=0.3)
    linear_cases.check(found, given, frozen=frozen, upstream=0.3)


def preference() -> None:
    preference_kernel.test_fp32_is_as_close_to_the_truth_as_eager(preference_loss_fwd, {}, True)


def advantages() -> None:
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, 3, 3, 4, 11, 30])
    rewards = torch.randn(30, generator=generator)
    valid = torch.rand(30, generator=generator) > 0.2
    for std in ("none", "population", "sample"):
        found = group_advantages(rewards, offsets, valid=valid, std=std, eps=1e-6)
        wanted = group_advantages_op._init_fn(rewards, offsets, valid, std, 1e-6)[0]
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)


def decode() -> None:
    """In fp32, one turn at a time: neither tensor cores nor asynchronous copies are executed."""
    step = test_decode.step_of(torch.float32, sinks=True, softcap=1.5, window=60)
    with mock.patch.object(test_decode.triton_decode, "STAGES", 1):
        test_decode.check(test_decode.by_operator, step, 4e-6)


# Each case with the kernels that it launches.
CASES: dict[str, tuple[Callable[[], None], set[str]]] = {
    "from logits": (from_logits, {"token_logps_fwd_kernel", "token_logps_bwd_kernel"}),
    "from logits, bf16, V = 8192": (
        lambda: from_logits(torch.bfloat16, 8192),
        {"token_logps_fwd_kernel", "token_logps_bwd_kernel"},
    ),
    "from logits, few columns": (
        lambda: from_logits(vocabulary=17, rows=64),
        {"token_logps_fwd_kernel", "token_logps_bwd_kernel"},
    ),
    "tile": (check_tile, {"fold_kernel", "gradient_kernel"}),
    "from hidden": (from_hidden, {"fold_kernel", "gradient_kernel"}),
    "policy": (
        policy,
        {"policy_loss_sequence_kernel", "policy_loss_token_kernel", "policy_finish_kernel"},
    ),
    "policy from logits": (
        policy_from_logits,
        {"policy_loss_from_logits_kernel", "policy_finish_kernel"},
    ),
    "policy from logits, bf16, V = 8192": (
        lambda: policy_from_logits(torch.bfloat16, 8192),
        {"policy_loss_from_logits_kernel"},
    ),
    "upstream": (upstream, {"policy_loss_from_logits_scale_kernel"}),
    "scaled": (scaled, {"scale_kernel"}),
    "linear, frozen": (
        lambda: linear("frozen_head"),
        {"fold_kernel", "rescale_kernel", "direction_kernel", "scale_kernel"},
    ),
    "linear": (lambda: linear("grad_in_forward"), {"gradient_kernel", "scale_kernel"}),
    "preference": (
        preference,
        {"preference_rewards_kernel", "preference_coef_kernel", "preference_finish_kernel"},
    ),
    "advantages": (advantages, {"group_advantages_kernel"}),
    "decode": (decode, {"shared_prefix_decode_kernel"}),
}

# At the size of a real vocabulary: several seconds each.
if os.environ.get("RRGKERN_PTX") == "all":
    for large, kernel in (
        (151936, from_logits_kernel.in_place),
        (151665, from_logits_kernel.through_op),
    ):
        CASES[f"policy from logits, bf16, V = {large}"] = (
            partial(policy_from_logits, torch.bfloat16, large, (1, 1), (kernel,)),
            {"policy_loss_from_logits_kernel"},
        )
# Where an exponential that errs by 16 ulps must be noticed; in long rows such errors average out.
ROUGH = ("from logits, few columns", "from hidden")

# A wrong mask by kernel: the case, and what is exchanged in the source.
MASKS = faults("masks of kernels")
# The function that holds the mask, where it is not the kernel itself.
MASKED_IN = {"token_logps_fwd_kernel": "sum_row"}
VECTOR = re.compile(
    r"(?:ld|st)\.(?:global|shared)[\w.:]*\.v[24]\.b\d+[^;]*?\[ ?%\w+ ?\+ ?(\d+) ?\]"
)


@contextmanager
def exchanged_source(kernel: str, old: str, new: str) -> Iterator[None]:
    """Exchange a piece of a kernel's source, or of a function that it calls, and compile anew."""
    functions = triton_functions()
    function, caller = functions[MASKED_IN.get(kernel, kernel)], functions[kernel]
    source = function.src
    assert old in source, f"{old!r} does not stand in {function.__name__}"
    function._unsafe_update_src(source.replace(old, new))
    caller.hash = None
    try:
        yield
    finally:
        function._unsafe_update_src(source)
        caller.hash = None


def barriers_of(kernel: Kernel) -> list[Block]:
    """The basic blocks that end with a barrier, in the order of the text."""
    return sorted((b for b in program(kernel) if b.barrier), key=lambda b: b.barrier[0].line)


def without_barrier(kernel: Kernel, number: int) -> Kernel:
    """The same program without its barrier of that number."""
    at = barriers_of(kernel)[number]
    blocks = [replace(b, barrier=None) if b is at else b for b in program(kernel)]
    return replace(kernel, program=blocks)


def unaligned(text: str) -> str:
    """PTX whose first access to a vector begins two bytes later."""
    match = VECTOR.search(text)
    assert match
    return text[: match.start(1)] + str(int(match[1]) + 2) + text[match.end(1) :]


def ending(case: Callable[[], None]) -> str:
    try:
        case()
    except PtxError as error:
        return f"{error.kind} {error}"
    except AssertionError as error:
        return f"wrong {error}"
    return "equal"


def report(kernel: str, done: str, ended: str, begin: float) -> None:
    print(json.dumps([kernel, done, ended, round(time.process_time() - begin, 2)]), flush=True)


def run_case(name: str) -> tuple[dict[str, str], dict[str, int]]:
    """Run a case and report it; returns PTX and number of barriers of the kernels it launched."""
    case, kernels = CASES[name]
    texts: dict[str, str] = {}
    barriers: dict[str, int] = {}

    def keep(kernel: str, text: str) -> str:
        return texts.setdefault(kernel, text) and text

    def count(kernel: Kernel) -> Kernel:
        barriers.setdefault(kernel.name, len(barriers_of(kernel)))
        return kernel

    on_ptx.exchanged.update({kernel: partial(keep, kernel) for kernel in kernels})
    on_ptx.altered.update(dict.fromkeys(kernels, count))
    begin = time.process_time()
    ended = ending(case)
    on_ptx.exchanged.clear()
    on_ptx.altered.clear()
    for kernel in sorted(kernels):
        report(kernel, name, ended if kernel in texts else "not launched", begin)
    return texts, barriers


def run_mutant(name: str, kernel: str, done: str) -> None:
    """Run a case in which something was exchanged and report how it ended."""
    begin = time.process_time()
    report(kernel, done, ending(CASES[name][0]), begin)
    on_ptx.exchanged.clear()
    on_ptx.altered.clear()


def main(names: list[str]) -> None:
    """Run the cases, or those that are named, and the mutants of their kernels."""
    shrink_triton(pytest.MonkeyPatch())
    gc.freeze()  # what was imported is not looked through again and again
    names = names or list(CASES)
    # A kernel is changed in the first case that has what is to be changed.
    barriers: dict[str, tuple[str, int]] = {}
    vectors: dict[str, str] = {}
    for name in names:
        texts, counts = run_case(name)
        for kernel, text in texts.items():
            if counts[kernel]:
                barriers.setdefault(kernel, (name, counts[kernel]))
            if VECTOR.search(text):
                vectors.setdefault(kernel, name)
    for kernel, (name, count) in barriers.items():
        for number in range(count):
            on_ptx.altered[kernel] = partial(without_barrier, number=number)
            run_mutant(name, kernel, f"barrier {number}")
    for kernel, name in vectors.items():
        on_ptx.exchanged[kernel] = unaligned
        run_mutant(name, kernel, "vector")
    for kernel, (name, old, new) in MASKS.items():
        if name in names:
            with exchanged_source(kernel, old, new):
                run_mutant(name, kernel, "mask")
    for name in ROUGH:
        if name in names:
            rough = {("ex2", "approx"): 16}
            with mock.patch.dict(numbers.ALLOWED, rough):
                run_mutant(name, name, "rough exponential")


if __name__ == "__main__":
    main(sys.argv[1:])
