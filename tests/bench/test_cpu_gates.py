"""The CPU gates in short: wide margins, because a busy machine moves every ratio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import cpu_gates
from rrgkern import csrc

ROOT = Path(__file__).parents[2]
# Times as fast as eager; the bounds of an idle machine are in `cpu_gates.GATES`.
LEAST = {
    "float32 in place": 4.0,
    "float32 out of place": 1.5,
    "bfloat16 in place": 5.0,
    "bfloat16 out of place": 4.0,
    "policy_loss": 1.3,
    "head": 1.3,
}


@pytest.mark.gate
@pytest.mark.skipif(csrc.load().cpu_isa() == "portable", reason="the gates are those of AVX2")
def test_the_losses_are_faster_than_eager():
    # In a process without Triton's interpreter, which serves the ops in this one.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-m", "bench.cpu_gates", "--short"],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert set(found) == set(LEAST)
    assert not {name: figure for name, figure in found.items() if figure < LEAST[name]}, found


def test_a_gate_is_judged_on_its_figure():
    gate = cpu_gates.Gate("case", "ours", "eager", True, 10.0)
    assert cpu_gates.judge(gate, {"ours": 1.0, "eager": 11.0})[0] == "pass"
    assert cpu_gates.judge(gate, {"ours": 1.0, "eager": 9.0})[0] == "FAIL"
    gate = cpu_gates.Gate("case", "ours", None, False, 60.0)
    assert cpu_gates.judge(gate, {"ours": 50e-6})[0] == "pass"
    assert cpu_gates.judge(gate, {"ours": 70e-6})[0] == "FAIL"
