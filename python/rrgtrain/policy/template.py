"""A prompt's wording of one's own: a text file with placeholders (`policy.prompt=FILE`).

A line whose placeholders are all empty for a study is left out of its prompt, as that of a section
which the study lacks. A brace that is no placeholder is doubled.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rrgtrain.errors import UserError

PLACEHOLDERS = ("current", "prior", "indication", "technique", "comparison")


def filled(path: str, values: Mapping[str, str]) -> str:
    """The template in `path` with the study's `values`, one for each of PLACEHOLDERS."""
    lines = []
    for line, named in _lines(path):
        if not named or any(values[name] for name in named):
            lines.append(line.format(**values))
    return "\n".join(lines)


def check_prompt(prompt: str, styles: Sequence[str]) -> None:
    """Raise UserError unless it is a wording in `styles` or a file to fill."""
    if prompt in styles:
        return
    if not Path(prompt).expanduser().is_file():
        near = difflib.get_close_matches(prompt, styles, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; use one of {', '.join(styles)}"
        raise UserError(f"policy.prompt={prompt} is no file and no wording{meant}")
    _lines(prompt)


@lru_cache(maxsize=8)
def _lines(path: str) -> list[tuple[str, list[str]]]:
    """Each line with its placeholders; UserError for one that is unknown, or a file without any."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        lines = [(line, _named(line)) for line in text.strip("\n").splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(
            f"policy.prompt={path} cannot be read ({error}); wanted text in UTF-8, a brace that "
            "is no placeholder doubled"
        ) from error
    found = {name for _, named in lines for name in named}
    listed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    foreign = sorted(found - set(PLACEHOLDERS))
    if foreign:
        raise UserError(f"policy.prompt={path} holds {{{foreign[0]}}}; there are {listed}")
    if not found:
        raise UserError(
            f"policy.prompt={path} has no placeholder, so nothing of a study would stand in it; "
            f"write at least one of {listed}"
        )
    return lines


def _named(line: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(line) if name is not None]
