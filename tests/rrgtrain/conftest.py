"""The trainer's tests compute with the ops' references where only an interpreter would serve.

The kernels are held to those references in their own rooms; here they would only take their time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from torch._library.custom_ops import OPDEFS

import rrgkern
from rrgkern.dispatch import interpreting, served_by
from rrgpolicy.ranks import ranks
from rrgtrain.cli import main
from rrgtrain.state.rundir import RunDir
from tests.rrgclinical.text.conftest import few_paraphrases, short_package

__all__ = ["few_paraphrases", "short_package"]


@pytest.fixture(autouse=True, scope="module")
def _references_in_place_of_the_interpreter() -> Iterator[None]:
    """Serves a module's own fixtures too: what they compute has the bits of its tests."""
    assert all(hasattr(rrgkern, name) for name in rrgkern.__all__), "each op is registered"
    with ExitStack() as stack:
        for name, op in list(OPDEFS.items()) if interpreting() else []:
            if name.startswith("rrgkern::") and served_by(name, "cpu").startswith("triton"):
                stack.enter_context(op.set_kernel_enabled("cpu", False))
        yield


@pytest.fixture(autouse=True, scope="module")
def _leaves_its_world() -> Iterator[None]:
    """Closes the process group of one that masters of another dtype open."""
    yield
    ranks.close()


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the test's own directory, where its commands run and keep their caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """A run directory of the test's own."""
    with RunDir.create(tmp_path / "run") as made:
        yield made


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command which is refused, and returns its one line.

    Beside it stands, at most, what its checkpoint remembers.
    """

    def run(*words: str, status: int = 2) -> str:
        capsys.readouterr()
        assert main(list(words)) == status, words
        out, err = capsys.readouterr()
        (line,) = [line for line in err.splitlines() if " was trained" not in line]
        assert line.startswith("rrgtrain: ") and out == "", err + out
        return line

    return run
