"""The Hub's folder beside the package in one process; `make parity` loads it by `kernels`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from experiments import hub_kernels


def plainly(folder: Path) -> ModuleType:
    """Import a variant under its id, as `kernels` does."""
    place = folder if (folder / "metadata.json").exists() else next(folder.glob("build/tvm-ffi*"))
    name = json.loads((place / "metadata.json").read_text())["id"]
    spec = spec_from_file_location(name, place / "__init__.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_variant_of_a_cpu_computes_the_packages_bits(tmp_path: Path) -> None:
    folder = tmp_path / "rrgkern"
    hub_kernels.write(folder)
    by = "from tests.experiments.test_hub_kernels import Path, hub_kernels, plainly"
    command = f"{by}; print(hub_kernels.check(Path({str(folder)!r}), plainly))"
    env = {**os.environ, "TRITON_INTERPRET": "0"}
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=env)
    assert "equal, bit by bit; policy_loss_fwd: csrc policy_loss;" in run.stdout, run.stderr
    with pytest.raises(SystemExit, match="is there already; name another folder"):
        hub_kernels.write(folder)
