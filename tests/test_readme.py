"""The example on README's first screen runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


AFTERWARDS = """
with torch.no_grad():
    head.weight -= head.weight.grad / head.weight.grad.norm()
moved = linear_token_logps(hidden, head.weight, targets).logps - logps
print(*(m.mean().item() for m in moved.split(offsets.diff().tolist())))
"""


def test_the_losses_of_the_first_page_run_as_they_stand() -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len([line for line in code.splitlines() if line]) <= 12
    # as a user runs it: without Triton's interpreter
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = {"env": environment, "capture_output": True, "text": True, "cwd": README.parent}
    seeded = "import torch; torch.manual_seed(0)\n" + code + AFTERWARDS
    done = subprocess.run([sys.executable, "-c", seeded], check=False, **run)
    assert done.returncode == 0, done.stderr
    moved = list(map(float, done.stdout.split()))
    assert moved[0] > 0 > moved[2], "the head moves to the report with most reward of its prompt"
    assert min(moved[4], moved[5]) > 0 > moved[3]


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
