"""The loops of examples/ train, and what they wrap computes the loss of plain forwards."""

from __future__ import annotations

import base64
import io
import re
import runpy
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.nn.parallel import DistributedDataParallel

from rrgkern import loss_scale, policy_loss, token_logps
from tests.examples.contracts import EXAMPLES, record_gradients
from tests.rrgtrain.runs import TINY_RUN


@pytest.fixture
def _on_path(monkeypatch) -> None:
    """As `python examples/FILE.py` has it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.usefixtures("_on_path")
def test_the_accelerate_loop_updates_its_policy(monkeypatch) -> None:
    gradients = record_gradients(monkeypatch)
    with torch.random.fork_rng():
        means = runpy.run_path(str(EXAMPLES / "accelerate_loop.py"))["main"](2)
    assert len(means) == len(gradients) == 2
    assert all(0.0 < mean < 1.0 for mean in means) and min(gradients) > 0.0


@pytest.mark.usefixtures("_on_path")
def test_the_wrapped_loss_has_the_gradients_of_plain_forwards(tmp_path) -> None:
    parts = runpy.run_path(str(EXAMPLES / "tiny_grpo.py"))
    prompts = [torch.tensor([2, 3]), torch.tensor([4])]
    reports = [[torch.tensor([5, 6, 1]), torch.tensor([7])], [torch.tensor([8, 1])]]
    advantages = torch.tensor([1.0, -0.5, 2.0])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = parts["Loss"]()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        wrapped = DistributedDataParallel(module)
        loss = wrapped(prompts, reports, advantages)
        loss.backward()
    finally:
        torch.distributed.destroy_process_group()
    shared = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    logps = []
    for prompt, group in zip(prompts, reports, strict=True):
        for report in group:
            logits = module.model(torch.cat([prompt, report])[None]).logits[0]
            logps.append(token_logps(logits[len(prompt) - 1 : -1], report).logps)
    offsets = torch.tensor([0, 3, 4, 6])
    scale = loss_scale("dr_grpo", offsets, max_length=parts["LONGEST"])
    plain = policy_loss(torch.cat(logps), advantages, offsets, scale=scale, spec=parts["SPEC"]).loss
    plain.backward()
    torch.testing.assert_close(loss, plain)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(shared[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


# The notebook of the first hour runs from top to bottom, and ends with a picture.
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
