"""Reading a table or writing a page loads neither torch nor what takes as long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# these sources, whichever checkout is installed
SOURCES = str(Path(__file__).resolve().parents[1] / "python")
MEASURE = """
import resource, sys
import {modules}
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = {{"torch", "transformers", "scipy", "matplotlib", "rrgkern", "rrgtrain"}} & set(sys.modules)
print(used.ru_utime + used.ru_stime, *sorted(heavy))
"""


def imported(modules: str) -> tuple[float, list[str]]:
    """Return seconds of processor of a new Python that imports them, and what it loaded."""
    command = [sys.executable, "-c", MEASURE.format(modules=modules)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    seconds, *heavy = subprocess.check_output(command, text=True, env=environment).split()
    return float(seconds), heavy


def test_data_and_reports_import_in_the_time_of_a_few_numpy() -> None:
    # By turns, so that whatever else runs slows both; 0.35 s on an idle core.
    turns = [(imported("rrgdata, rrgreport"), imported("numpy")) for _ in range(3)]
    assert not any(heavy for (_, heavy), _ in turns)
    ours, numpy = (min(seconds for seconds, _ in side) for side in zip(*turns, strict=True))
    assert ours < 5 * numpy, f"{ours:.2f} s, numpy {numpy:.2f} s"


def test_the_policies_package_loads_nothing_and_the_worker_torch_alone() -> None:
    assert imported("rrgpolicy")[1] == []
    assert imported("rrgpolicy.vllm_worker")[1] == ["torch"]
