"""The trainer on a stand-in for a GPU: nothing it computes meets a tensor of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rrgkern.test_standin import ROOT, on_standin

STEPS = str(ROOT / "tests" / "rrgtrain" / "train" / "on_standin.py")
# Rewards and texts are on the host, and with them what is made of them.
ON_HOST = "group_advantages,edit_plan,entity_match,byte_level_spans,span_max,tfidf_weights"
FAULT = """
from rrgkern.shared_prefix import SharedPrefixBatch

SharedPrefixBatch.to = lambda self, device: self
"""


@pytest.fixture(autouse=True)
def _host_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRGKERN_STANDIN_HOST", ON_HOST)
    monkeypatch.setenv("RRGKERN_STANDIN_CASES", "all")


@pytest.mark.slow
def test_every_algorithm_trains_on_a_device_of_its_own() -> None:
    run = on_standin(STEPS)
    assert "7 passed" in run.stdout, run.stdout[-4000:] + run.stderr


@pytest.mark.slow
def test_a_batch_left_on_the_cpu_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fault.py").write_text(FAULT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = on_standin("-p", "fault", STEPS, "-k", "orapo")
    assert "a tensor on standin, another on cpu" in run.stdout, run.stdout[-4000:] + run.stderr
