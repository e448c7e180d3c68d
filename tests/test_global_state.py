"""A test or fixture that leaves a global setting changed fails, whichever setting it is."""

from __future__ import annotations

import csv
import locale
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo.config
from torch.backends import cuda

from tests.global_state import DYNAMO, unchanged

pytest_plugins = ["pytester"]


def turned(owner: Any, name: str, value: object) -> tuple[Callable[[], None], Callable[[], None]]:
    """Make the change of an attribute, and what puts it back."""
    before = getattr(owner, name)
    assert before != value, f"{name} is {value} already"
    return lambda: setattr(owner, name, value), lambda: setattr(owner, name, before)


def switched(turn: Callable[[bool], None], on: bool = True) -> tuple[Callable[[], None], ...]:
    """Make the change of a switch that is `on`, or off, and what puts it back."""
    return lambda: turn(not on), lambda: turn(on)


def called(set_to: Callable[..., Any], new: Any, old: Any) -> tuple[Callable[[], Any], ...]:
    """Make the change by a function of one value, and what puts the old one back."""
    return lambda: set_to(new), lambda: set_to(old)


THREADS, PLACE = torch.get_num_threads(), os.getcwd()
NUMERIC = locale.setlocale(locale.LC_NUMERIC)
CHANGES = {
    "torch default dtype": called(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "torch default device": called(torch.set_default_device, "meta", None),
    "torch threads": called(torch.set_num_threads, THREADS + 1, THREADS),
    "torch grad mode": switched(torch.set_grad_enabled),
    "torch anomaly mode": switched(torch.autograd.set_detect_anomaly, on=False),
    "torch deterministic algorithms": switched(torch.use_deterministic_algorithms, on=False),
    "torch bf16 reductions": turned(cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    "torch flash SDP": switched(cuda.enable_flash_sdp),
    **{
        f"torch._dynamo.config.{name}": turned(torch._dynamo.config, name, value)
        for name, value in zip(DYNAMO, (3, True, True, False, True), strict=True)
    },
    "torch matmul precision": called(torch.set_float32_matmul_precision, "medium", "highest"),
    "torch denormals": switched(torch.set_flush_denormal, on=False),
    "NumPy print options": called(lambda n: np.set_printoptions(precision=n), 2, 8),
    "longest cell of a CSV": called(csv.field_size_limit, 2**20, 2**17),
    "environment RRGKERN_PLANTED": (
        lambda: os.environ.update(RRGKERN_PLANTED="1"),
        lambda: os.environ.pop("RRGKERN_PLANTED"),
    ),
    "locale": called(
        partial(locale.setlocale, locale.LC_NUMERIC), "C.UTF-8" if NUMERIC == "C" else "C", NUMERIC
    ),
    "working directory": called(os.chdir, "/", PLACE),
    "SIGTERM": called(partial(signal.signal, signal.SIGTERM), signal.SIG_IGN, signal.SIG_DFL),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_planted_change_is_named(name):
    change, restore = CHANGES[name]
    try:
        with pytest.raises(AssertionError, match=f"state changed: {name} was"), unchanged():
            change()
    finally:
        restore()


def test_every_test_module_and_session_is_watched(request):
    watching = [name for name in request.fixturenames if name.startswith("_global_state_stays")]
    assert len(watching) == 3


LEAK = """
import pytest
import torch

@pytest.fixture(scope="{scope}")
def wide():
    torch.set_default_dtype(torch.float64)
    yield
    {teardown}

def test_that_changes_nothing(wide):
    pass
"""


def outcome_of(pytester, scope, teardown):
    pytester.makepyfile(LEAK.format(scope=scope, teardown=teardown))
    try:
        return pytester.runpytest_inprocess("-p", "tests.conftest")
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("scope", ["function", "module", "session"])
def test_a_fixture_that_leaves_a_change_is_named(pytester, scope):
    run = outcome_of(pytester, scope, "pass")
    run.assert_outcomes(passed=1, errors=1)
    who = "test" if scope == "function" else scope
    run.stdout.fnmatch_lines(f"*the {who} leaves global state changed: torch default dtype was*")
