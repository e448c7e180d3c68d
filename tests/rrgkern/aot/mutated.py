"""Run a check against a kernel's module with a piece of its source exchanged.

Triton reads a kernel's source from its file, so a mutant needs one; and in a process of its own,
because a wild address may lie outside of any memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]
RUN = """
import importlib.util, sys
from tests import interpreter
interpreter.patch_once()
name, path, check, argument = sys.argv[1:]
spec = importlib.util.spec_from_file_location(name, path)
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
spec.loader.exec_module(module)
parent, _, child = name.rpartition(".")
setattr(importlib.import_module(parent), child, module)
module, _, function = check.rpartition(".")
getattr(importlib.import_module(module), function)(argument)
"""


def passes(module: ModuleType, old: str, new: str, check: str, argument: str) -> bool:
    """Tell whether `check(argument)`, a dotted name, still passes with `old` replaced by `new`.

    `old` stands in the module exactly once. Fails the test when the check ends in anything but an
    AssertionError or a signal.
    """
    assert module.__file__
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "mutant.py")
        path.write_text(source.replace(old, new))
        paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-c", RUN, module.__name__, str(path), check, argument],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
    died = done.returncode < 0 or "AssertionError" in done.stderr
    assert done.returncode == 0 or died, done.stderr[-2000:]
    return done.returncode == 0
