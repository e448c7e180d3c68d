"""The notebook of the first hour runs from top to bottom, and ends with a picture."""

from __future__ import annotations

import base64
import io
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.rrgtrain.runs import TINY_RUN

NO_NBCLIENT = "no nbclient: pip install -c constraints.txt -e '.[test]'"
nbformat = pytest.importorskip("nbformat", reason=NO_NBCLIENT)
nbclient = pytest.importorskip("nbclient", reason=NO_NBCLIENT)
ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "first_hour.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def test_no_output_is_committed() -> None:
    for cell in read().cells:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None, cell.id


def test_the_pages_that_it_names_are_there() -> None:
    pages = set(re.findall(r"docs/[\w/.-]+\.md|docs/[\w-]+/", NOTEBOOK.read_text("utf-8")))
    assert pages and all((ROOT / page).exists() for page in pages), pages


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """nbclient leaves Python's own handler of SIGINT, whichever stood before."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_interrupts")
def test_it_runs_and_ends_with_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_HOUR", shlex.join(TINY_RUN))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'python'}")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    notebook = nbclient.NotebookClient(read(), timeout=600, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    printed = [text_of(cell) for cell in cells]
    assert "Cardiomegaly: missed" in printed[0] and "Pleural Effusion: right" in printed[0]
    assert "micro-F1 of 14 labels: 0." in printed[1]
    assert "Small left pleural effusion. The heart is enlarged.\n" in printed[2]
    assert "('a', 'No pleural effusion.', 'Small left pleural effusion.')" in printed[2]
    assert re.search(r"loss [+-]0\.\d+, gradient of the head 0*[1-9.]", printed[3])
    assert "EditGRPO" in printed[5] and "no number here is a clinical result" in printed[5]
    (page,) = (output.data["text/html"] for output in cells[-1].outputs)
    (picture,) = re.findall(r"base64,([\w+/=]+)", page)
    assert Image.open(io.BytesIO(base64.b64decode(picture))).size[0] >= 32
    assert all(name in page for name in ("reference", "SFT", "EditGRPO", "no clinical result"))
