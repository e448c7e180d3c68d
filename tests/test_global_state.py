"""A test or fixture that leaves a global setting changed fails, whichever setting it is."""

from __future__ import annotations

import os
from functools import partial

import pytest
import torch
import torch._dynamo.config

from tests.global_state import unchanged

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
