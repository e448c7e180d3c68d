"""A test or fixture that leaves a global setting changed fails, whichever setting it is."""

from __future__ import annotations

import os
from functools import partial

import pytest
import torch
import torch._dynamo.config

from tests.global_state import unchanged

pytest_plugins = ["pytester"]

PLACE, RECOMPILED = os.getcwd(), torch._dynamo.config.recompile_limit
CHANGES = {
    "torch default dtype": (
        partial(torch.set_default_dtype, torch.bfloat16),
        partial(torch.set_default_dtype, torch.float32),
    ),
    "torch denormals": (
        partial(torch.set_flush_denormal, True),
        partial(torch.set_flush_denormal, False),
    ),
    "torch._dynamo.config.recompile_limit": (
        partial(setattr, torch._dynamo.config, "recompile_limit", RECOMPILED + 1),
        partial(setattr, torch._dynamo.config, "recompile_limit", RECOMPILED),
    ),
    "environment RRGKERN_PLANTED": (
        partial(os.environ.update, RRGKERN_PLANTED="1"),
        partial(os.environ.pop, "RRGKERN_PLANTED"),
    ),
    "working directory": (partial(os.chdir, "/"), partial(os.chdir, PLACE)),
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

def test_that_changes_nothing(wide):
    pass
"""


@pytest.mark.parametrize("scope", ["function", "module", "session"])
def test_a_fixture_that_leaves_a_change_is_named(pytester, scope):
    pytester.makepyfile(LEAK.format(scope=scope))
    try:
        run = pytester.runpytest_inprocess("-p", "tests.conftest")
    finally:
        torch.set_default_dtype(torch.float32)
    run.assert_outcomes(passed=1, errors=1)
    who = "test" if scope == "function" else scope
    run.stdout.fnmatch_lines(f"*the {who} leaves global state changed: torch default dtype was*")
