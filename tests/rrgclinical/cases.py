"""Read hand-written sentences, with the class ids that a radiologist reads in them, from tables.

A row of `sentences/*.tsv` is a sentence and its labels: `Column sign`, + positive, - negative,
? uncertain. An observation that is not named is blank; No Finding follows from the rest. The rows
of `templates.tsv` are of a kind, and `{}` in them is any finding; those of `splits.tsv` have a text
and its sentences, with | between. ⇥ is a tab, and ⏎ a line feed; a line that begins with # is a
comment.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rrgclinical import ClassId

FOLDER = Path(__file__).parent / "sentences"
TABLES = ("findings", "scope", "clauses", "wording", "dictation")
COLUMNS = {
    "EC": 0, "CM": 1, "LO": 2, "LL": 3, "ED": 4, "CO": 5, "PN": 6, "AT": 7, "PX": 8, "PE": 9,
    "PO": 10, "FX": 11, "SD": 12,
}  # fmt: skip
SIGNS = {"+": 1, "-": 2, "?": 3}
_CONTROLS = str.maketrans("⇥⏎", "\t\n")


@cache
def cases(table: str = "findings") -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every row of a table."""
    rows = (line.partition("\t") for line in _lines(table))
    return [
        (said.translate(_CONTROLS), {COLUMNS[item[:2]]: SIGNS[item[2]] for item in labels.split()})
        for said, _, labels in rows
    ]


@cache
def templates(kind: str) -> list[str]:
    rows = (line.split("\t") for line in _lines("templates"))
    return [sentence for name, sentence in rows if name == kind]


@cache
def sentences_with_entities() -> list[tuple[str, list[str]]]:
    """(sentence, its entities) of every row: + is present, - is absent."""
    rows = (line.split("\t") for line in _lines("entities"))
    return [(sentence, read.split("; ") if read else []) for sentence, read in rows]


@cache
def splits() -> list[tuple[str, list[str]]]:
    rows = (line.split("\t") for line in _lines("splits"))
    return [
        (text.translate(_CONTROLS), sentences.translate(_CONTROLS).split("|") if sentences else [])
        for _, text, sentences in rows
    ]


_ROWS: dict[str, Any] = yaml.safe_load((FOLDER / "tables.yaml").read_text(encoding="utf-8"))


def table(name: str) -> Any:
    """Return the rows of a table of `sentences/tables.yaml`, which its test explains."""
    return _ROWS[name]


def _lines(table: str) -> list[str]:
    lines = (FOLDER / f"{table}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [line for line in lines if not line.startswith("#")]


# Parts of sentences that deny, doubt or ask for a finding: the class follows from the parts.
#
# `{}` is the finding. Each kind is a list of templates with slots; a slot's words are in `PARTS`.
_TABLE = yaml.safe_load((FOLDER / "parts.yaml").read_text(encoding="utf-8"))
FINDINGS: dict[str, str] = _TABLE["findings"]
# Of words that take several lines, each line.
PARTS = {
    slot: words if isinstance(words, str) else "|".join(words)
    for slot, words in _TABLE["parts"].items()
}
KINDS: dict[str, tuple[ClassId, tuple[str, ...]]] = {
    kind: (ClassId[row["class"]], tuple(row["templates"])) for kind, row in _TABLE["kinds"].items()
}
_SLOT = re.compile(r"<(\w+)>")


def drawn(template: str, count: int, rng: random.Random) -> list[str]:
    return [
        _SLOT.sub(lambda slot: rng.choice(PARTS[slot[1]].split("|")), template)
        for _ in range(count)
    ]
