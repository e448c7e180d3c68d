"""The Hub's `kernels` chooses, validates and loads what `experiments.hub_kernels` writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from experiments import hub_kernels
from tests.parity.padded import peer

peer("kernels")


def test_kernels_loads_both_variants(tmp_path: Path) -> None:
    from kernels._rust import Build, Metadata

    folder = tmp_path / "rrgkern"
    hub_kernels.write(folder)
    assert [str(b).lower() for b in Build.open(folder).general.backends] == ["cuda"]
    assert len([Metadata.read_from_file(p) for p in folder.glob("build/*/metadata.json")]) == 2
    for interpret in "01":
        command = [sys.executable, "-m", "experiments.hub_kernels", str(folder), "--check"]
        env = {**os.environ, "TRITON_INTERPRET": interpret, "HF_HUB_OFFLINE": "1"}
        run = subprocess.run(command, capture_output=True, text=True, env=env)
        assert "results equal, bit by bit" in run.stdout, run.stderr
