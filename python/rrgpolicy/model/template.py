"""A prompt's wording of one's own: a text file with placeholders (`policy.prompt=FILE`).

A line whose placeholders are all empty for a study is left out of its prompt, as that of a section
which the study lacks. A brace that is no placeholder is doubled. A placeholder is its name and no
more: a width as in `{current:>9}` could ask for any memory, a conversion as in `{current!r}` writes
Python.
"""

from __future__ import annotations

import difflib
import operator
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rrgclinical.common.errors import UserError

LONGEST = 20_000
"""Characters of a template, as many as of a report (`data.longest_text`)."""
MOST = 8
"""Times that a placeholder may stand in it."""
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
        with Path(path).expanduser().open(encoding="utf-8-sig") as file:
            text = file.read(LONGEST + 1)
        parsed = [(line, _named(line)) for line in text.strip("\n").splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(
            f"policy.prompt={path} cannot be read ({error}); wanted text in UTF-8, a brace that "
            "is no placeholder doubled"
        ) from error
    if "\0" in text:
        raise UserError(f"policy.prompt={path} holds a NUL; save it as UTF-8 text")
    if len(text) > LONGEST:
        raise UserError(f"policy.prompt={path} has more than {LONGEST:,} characters; shorten it")
    formats = [f"{name}{added}" for _, named in parsed for name, added in named if added]
    if formats:
        raise UserError(
            f"policy.prompt={path} holds {{{formats[0][:40]}}}; a placeholder is a name alone, "
            "without a conversion (!) or a format (:), so remove that"
        )
    lines = [(line, [name for name, _ in named]) for line, named in parsed]
    times = Counter(name for _, named in lines for name in named)
    found = set(times)
    listed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    foreign = sorted(found - set(PLACEHOLDERS))
    if foreign:
        raise UserError(f"policy.prompt={path} holds {{{foreign[0]}}}; there are {listed}")
    name, most = max(times.items(), key=operator.itemgetter(1), default=("", 0))
    if most > MOST:
        raise UserError(
            f"policy.prompt={path} holds {{{name}}} {most} times; wanted at most {MOST}"
        )
    if not found:
        raise UserError(
            f"policy.prompt={path} has no placeholder, so nothing of a study would stand in it; "
            f"write at least one of {listed}"
        )
    return lines


def _named(line: str) -> list[tuple[str, str]]:
    """List the placeholders of a line, and what stands behind their names."""
    return [
        (name, f"!{conversion}" * bool(conversion) + f":{form}" * bool(form))
        for _, name, form, conversion in string.Formatter().parse(line)
        if name is not None
    ]
