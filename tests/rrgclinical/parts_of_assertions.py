"""Parts of sentences that deny, doubt or ask for a finding: the class follows from the parts.

`{}` is the finding. Each kind is a list of templates with slots; a slot's words are in `PARTS`.
"""

from __future__ import annotations

import random
import re

import yaml

from rrgclinical import ClassId
from tests.rrgclinical.cases import FOLDER

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
    """`count` readings of a template, each with one of the words of its slots."""
    return [
        _SLOT.sub(lambda slot: rng.choice(PARTS[slot[1]].split("|")), template)
        for _ in range(count)
    ]
