"""Let one implementation serve the ops of the losses and log-probabilities on CPUs.

By default that is Triton's interpreter; without it the extension, and without that the reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from rrgkern import csrc, dispatch
from rrgkern.logps import csrc_launch as of_logits
from rrgkern.logps import from_hidden
from rrgkern.logps import op as logps
from rrgkern.policy_loss import csrc_launch as of_logps
from rrgkern.policy_loss import op as policy
from rrgkern.policy_loss.from_logits import op as from_logits
from rrgkern.policy_loss.linear import op as linear
from rrgkern.preference_loss import op as of_pairs
from rrgkern.preference_loss import op as preference
from tests.products import more

TILES = from_hidden.CSRC_TILES
EXTENSION = {
    logps.token_logps_fwd: of_logits.token_logps_fwd,
    logps.token_logps_bwd: of_logits.token_logps_bwd,
    logps.token_logps_bwd_: of_logits.token_logps_bwd_,
    logps.linear_token_logps_fwd: partial(from_hidden.fwd, TILES),
    logps.linear_token_logps_bwd: partial(from_hidden.bwd, TILES),
    logps.linear_token_logps_bwd_into: partial(from_hidden.bwd_into, TILES),
    policy.policy_loss_fwd: of_logps.launch,
    from_logits.policy_loss_from_logits_fwd: from_logits.anew_by_csrc,
    from_logits.policy_loss_from_logits_fwd_: from_logits.inplace_by_csrc,
    from_logits.policy_loss_from_logits_scale_: from_logits.scale_by_csrc,
    linear.linear_policy_loss_fwd: partial(linear._forward, linear.CSRC_PLAN),
    linear.linear_policy_loss_scale_: linear.scale_in_place,
    preference.preference_loss_fwd: of_pairs.launch,
}


def serve(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Let `backend`, one of "as it is", "extension" and "reference", serve CPUs in this test."""
    if backend == "as it is":
        return
    for op in EXTENSION:
        launch = EXTENSION.get(op) if backend == "extension" else None
        kernel = dispatch._Kernel(backend, lambda: None, launch)
        monkeypatch.setitem(dispatch._kernels, (op._qualname, "cpu"), kernel)
        monkeypatch.setitem(op._backend_fns, "cpu", launch or op._init_fn)


def csrc_alone(monkeypatch: pytest.MonkeyPatch, op: Any, launch: Callable[..., Any]) -> None:
    """As without Triton's interpreter: let csrc have the op, which may then call it directly."""
    kernel = dispatch._Kernel("csrc", lambda: None, launch)
    monkeypatch.setitem(dispatch._kernels, (op._qualname, "cpu"), kernel)
    monkeypatch.setitem(op._backend_fns, "cpu", launch)


def by_threads(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any], *counts: int) -> list[Any]:
    """Return what `call` returns on so many threads each."""
    results = []
    for count in counts:
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        results.append(call())
    return results


def isas() -> list[str]:
    """The instruction sets that RRGKERN_CPU may name on this machine, the least first."""
    known = ["portable", "avx2", "avx512"]
    asked = os.environ.pop("RRGKERN_CPU", None)
    best = known.index(csrc.load().cpu_isa())
    if asked is not None:
        os.environ["RRGKERN_CPU"] = asked
    return known[: best + 1]


ISAS = isas()


@pytest.fixture(params=[ISAS[-1], *more(*ISAS[:-1])])
def each_isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Serve csrc by one instruction set."""
    monkeypatch.setenv("RRGKERN_CPU", request.param)
    assert csrc.load().cpu_isa() == request.param
    return str(request.param)
