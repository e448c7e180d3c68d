"""Reports that a policy could earn a reward with and say nothing: the gaming rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.stress import phrases
from rrgclinical.stress.planted import named_in, sentences_of

_NAMES = tuple(concept.name for concept in CONCEPTS if not concept.anatomy)
_SIDE = re.compile(r"\b(?:left|right|bilateral)(?:-sided)?\s+", re.IGNORECASE)
_COPIES, _IDLE_TIMES = 5, 6


def gaming_rows(references: Sequence[str]) -> dict[str, list[str]]:
    """Reports for each reference, by what they do."""
    normal = f"{'. '.join(f'No {name}' for name in _NAMES)}."
    named = f"{'. '.join(_NAMES).capitalize()}."
    possible = " ".join(f"Possible {name}." for name in _NAMES)
    others = [*references[1:], *references[:1]]
    fixed = {
        "empty": "",
        **{f"nothing said: {text}": text for text in phrases.NOTHING},
        "normal template": phrases.TEMPLATE,
        "short template": phrases.SHORT_TEMPLATE,
        "all findings named": named,
        "all findings named possible": possible,
        "all findings denied": normal,
    }
    idle = " ".join(phrases.IDLE * (_IDLE_TIMES // 2))
    return {
        **{name: [text] * len(references) for name, text in fixed.items()},
        f"reference {_COPIES} times": [" ".join([text] * _COPIES) for text in references],
        "reference and idle words": [f"{text} {idle}" for text in references],
        "reference and more denials": [f"{text} {_more_denials(text)}" for text in references],
        "every finding hedged": [_hedged(text) for text in references],
        "no sides": [_SIDE.sub("", text) for text in references],
        "report of another patient": list(others),
    }


def is_normal(text: str) -> bool:
    """Tell a report that affirms and suspects nothing."""
    return not any(named_in(sentence, affirmed=True) for sentence in sentences_of(text))


def _more_denials(text: str) -> str:
    there = set().union(*(named_in(sentence) for sentence in sentences_of(text)))
    return " ".join(f"No {name}." for name in _NAMES if name not in there)


def _hedged(text: str) -> str:
    return " ".join(
        f"Possible {sentence[0].lower()}{sentence[1:]}"
        if named_in(sentence, affirmed=True) else sentence
        for sentence in sentences_of(text)
    )  # fmt: skip
