"""A process of the oracle environment that answers calls, and ends with the object."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError

SETTING = "RRGKERN_ORACLE_PYTHON"
_HOW = (
    f"the official packages need older libraries: run `make oracle`, or name the python of an "
    f"environment with constraints-oracle.txt in {SETTING}"
)
_CHECKOUT = Path(__file__).resolve().parents[3]


class OracleError(RuntimeError):
    """A package raised, or its process ended. Never a score."""


def oracle_python(python: str | Path | None = None) -> Path:
    """The program: `python`, RRGKERN_ORACLE_PYTHON, or .venv-oracle beside this source.

    Raises:
        UserError: it is not there; how to get it.
    """
    named = python or os.environ.get(SETTING)
    program = Path(named).expanduser() if named else _CHECKOUT / ".venv-oracle" / "bin" / "python"
    if not program.is_file():
        raise UserError(f"no python at {program}: {_HOW}")
    return program


class Worker:
    """One process in a folder of its own, which the packages use as cache.

    It serves any number of models; starting it takes the packages' imports, some ten seconds.
    """

    def __init__(self, python: str | Path | None = None, *, timeout: float = 3600.0) -> None:
        """timeout: seconds that one call may take. UserError when there is no environment."""
        program = oracle_python(python)
        self.timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="rrgtrain-oracle-")
        self.folder = Path(self._folder.name)
        self._errors = (self.folder / "stderr").open("w+", encoding="utf-8", errors="replace")
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(self.folder),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._process = subprocess.Popen(
            # Isolated: nothing of this process' path, and not this folder, whose modules are
            # named like the packages.
            [str(program), "-I", str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self.folder,
            env=environment,
            encoding="utf-8",
        )
        self.close = weakref.finalize(self, _end, self._process, self._errors, self._folder)

    def call(self, name: str, **arguments: Any) -> Any:
        """Call `worker.name(**arguments)` in the process; return its result.

        Raises:
            OracleError: it raised, took too long, or the process has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if not self.close.alive or stdin is None or stdout is None:
            raise OracleError(f"{name}: the oracle process is closed")
        try:
            stdin.write(json.dumps({"call": name, "arguments": arguments}) + "\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise OracleError(self._ended(name)) from error
        if not select.select([stdout], [], [], self.timeout)[0]:
            self.close()
            raise OracleError(f"{name}: no answer from the oracle process in {self.timeout:g} s")
        line = stdout.readline()
        if not line:
            raise OracleError(self._ended(name))
        answer = json_reader.parse(line)
        if "error" in answer:
            raise OracleError(f"{name}: {answer['error']}")
        return answer["result"]

    def _ended(self, name: str) -> str:
        code = self._process.wait()
        lines = (self.folder / "stderr").read_text("utf-8", "replace").strip().splitlines()
        return f"{name}: the oracle process ended with {code} ({lines[-1] if lines else 'silent'})"


def _end(
    process: subprocess.Popen[str], errors: IO[str], folder: tempfile.TemporaryDirectory[str]
) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue
    folder.cleanup()
