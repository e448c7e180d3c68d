"""The example on README's first screen runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_own_loop_runs_as_it_stands() -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(code.splitlines()) <= 40
    # as a user runs it: without Triton's interpreter
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = {"env": environment, "capture_output": True, "text": True, "cwd": README.parent}
    done = subprocess.run([sys.executable, "-c", code], check=False, **run)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[:6] for line in lines] == [f"step {k}" for k in range(4)]
    ratios = [float(line.rsplit(" ", 1)[1]) for line in lines]
    assert ratios[0] == 1.0 and ratios[-1] > 1.5, "the head moves towards what was praised"


def test_the_first_page_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 200


def test_the_first_screens_show_a_case_the_installation_and_the_data_flow() -> None:
    page = README.read_text("utf-8")
    screens = "\n".join(page.splitlines()[:50])
    for words in ("pip install", "make demo", "make test", "--small", "macOS and Windows"):
        assert words in screens
    assert "docs/img/case.svg" in "\n".join(page.splitlines()[:8])
    assert "docs/img/step.svg" in "\n".join(page.splitlines()[:60])
    for picture in re.findall(r"!\[[^\]]{20,}\]\(([^)]+)\)", page):
        assert (README.parent / picture).is_file(), picture
