"""Say what a step has failed of, and keep what helps to find out why."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrgclinical.common.files import atomic_write
from rrgclinical.common.shown import redacted
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.state.write import write_checkpoint


def first_line(error: Exception) -> str:
    """The error's class and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def keep_batch(path: Path, state: Mapping[str, Any]) -> str:
    """Write what `rrgtrain replay` needs; all ranks together. Returns words for the line."""
    try:
        write_checkpoint(path, dict(state))
    except OSError as full:
        return f"; its batch could not be kept ({full.strerror})"
    return f"; its batch is kept for: rrgtrain replay {shlex.quote(str(path))}"


def keep_trace(path: Path, error: Exception) -> str:
    """Write the traceback on rank 0. Returns words for the line."""
    if not ranks.is_main():
        return ""
    try:
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, redacted("".join(traceback.format_exception(error))))
    except (OSError, UserError):  # the error itself is what is told
        return ""
    return f" (traceback in {path})"
