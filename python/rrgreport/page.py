"""HTML pages that need nothing else: templates, and the style that they share."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import (
    atomic_write,
    make_parents,
    remove_empty,
    remove_left,
    require_file_place,
)
from rrgclinical.common.shown import printable

MADE = b'<meta name="generator" content="rrgtrain report">'
"""Stands near the beginning of every report."""


def require_page(out: Path) -> None:
    """Raise UserError where `out` is something else than a report, which is not written over."""
    require_file_place(out)
    try:
        if out.exists() and (not out.is_file() or MADE not in out.read_bytes()[:4096]):
            raise UserError(f"--out {out} is there and is no report; name another file")
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from error


def write_out(out: Path, text: str) -> None:
    """Write a page, and the directories above it."""
    made = make_parents(out)
    try:
        remove_left(out)
        atomic_write(out, text)
    except BaseException:
        remove_empty(made)
        raise


@functools.cache
def environment() -> Environment:
    """Open the templates; each is compiled once in a process."""
    return Environment(
        loader=PackageLoader("rrgreport"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(template: str, **shown: Any) -> str:
    """A page from `templates/`, which finds the style sheet as `style`.

    The one script that a page may have is `script`, allowed by its SHA-256 `script_digest`.

    What is shown is escaped, unless it is Markup, and so are control characters; a name that has no
    value is an error.
    """
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return printable(
        environment()
        .get_template(template)
        .render(style=_file("report.css"), script=script, script_digest=digest, **shown)
    )


def _file(name: str) -> Markup:
    file = resources.files("rrgreport") / "templates" / name
    return Markup(file.read_text(encoding="utf-8"))
