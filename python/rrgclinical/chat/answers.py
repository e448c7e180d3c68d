"""Read a model's answer: what stands behind its reasoning, and its JSON."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rrgclinical.common import json_reader

_FENCE = re.compile(r"^[ \t]*```[a-z]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
# As models are served without a parser of reasoning: DeepSeek, Qwen, Granite; Magistral; Seed.
_NAMES = r"(?:think|thinking|thought|reasoning|seed:think)"
_OPENED = re.compile(rf"<{_NAMES}>|\[think\]", re.IGNORECASE)
_CLOSED = re.compile(rf"</{_NAMES}>|\[/think\]", re.IGNORECASE)


def after_reasoning(text: str) -> str:
    """Return what stands behind the last closed block of reasoning.

    A template may have opened the block, so that the text has its end alone. Raises ValueError for
    a block that never ends, behind which there is no answer.
    """
    end = max((block.end() for block in _CLOSED.finditer(text)), default=0)
    if _OPENED.search(text, end):
        raise ValueError("it holds reasoning alone, whose block never ends")
    return text[end:].strip() if end else text


def parse_json(text: str) -> Any:
    """Read the one JSON value in `text`.

    It is all of it, stands in a code fence, or behind a sentence. Raises ValueError where there are
    two, for a key given twice, NaN, or an unfinished value.
    """
    answer = text.strip()
    fenced = _FENCE.findall(answer)
    if len(fenced) == 1:
        answer = fenced[0]
    elif answer[:1] not in ("{", "["):
        # text around a value holds no brace of its own, or what is between them is no JSON
        first, last = answer.find("{"), answer.rfind("}")
        answer = answer[first : last + 1] if 0 <= first < last else answer
    return json_reader.parse(answer, pairs=_unique, constant=_refuse)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return members


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
