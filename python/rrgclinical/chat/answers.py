"""A model's answer as the JSON it was asked for."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rrgclinical.common import json_reader

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)


def parse_json(text: str) -> Any:
    """Read the one JSON value in `text`, without its code fence.

    Raises ValueError for text before or after it, a key given twice, NaN, or an unfinished value.
    """
    stripped = text.strip()
    fenced = _FENCE.match(stripped)
    answer = fenced[1] if fenced else stripped
    return json_reader.parse(answer, pairs=_unique, constant=_refuse)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return members


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
