"""The trainer on a stand-in for a GPU: nothing it computes meets a tensor of the CPU."""

from __future__ import annotations

import pytest

from tests.rrgkern.test_standin import ROOT, on_standin

STEPS = str(ROOT / "tests" / "rrgtrain" / "train" / "on_standin.py")
# Rewards and texts are on the host, and with them what is made of them.
ON_HOST = "group_advantages,edit_plan,entity_match,byte_level_spans,span_max,tfidf_weights"


@pytest.fixture(autouse=True)
def _host_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRGKERN_STANDIN_HOST", ON_HOST)
    monkeypatch.setenv("RRGKERN_STANDIN_CASES", "all")


@pytest.mark.slow
def test_every_algorithm_trains_on_a_device_of_its_own_and_a_fault_is_red() -> None:
    run = on_standin(STEPS)
    assert "8 passed" in run.stdout, run.stdout[-4000:] + run.stderr
