"""Join words that a line's end parts; drop marks that quote lines."""

from __future__ import annotations

import re

from rrgclinical.rules.lexicon import phrase_table

SOFT = "\xad"
"""A soft hyphen: it is seen at the end of a line, and nowhere else."""
_BROKEN = re.compile(r"(?<![^\W_])([^\W\d_]{2,})([-\u2010\xad](?: *\n *| ))([^\W\d_]{2,})(\S*)( ?)")


def unbroken(text: str, joiner: str) -> str:
    """`text` with the words joined that a hyphen parts at the end of a line.

    Only what is then a word of the tables: "pneumo-/thorax", not "right-/sided". The end of the
    line goes behind the word.
    """
    if text.isascii() and "- " not in text and "-\n" not in text:
        return text
    words = phrase_table().lemma

    def join(match: re.Match[str]) -> str:
        first, gap, last, more, blank = match.groups()
        if gap[0] != SOFT and (first + last).lower() not in words:
            return match[0]
        end = "\n" if blank and "\n" in gap else blank
        return f"{first}{joiner * len(gap)}{last}{more}{end}"

    return _BROKEN.sub(join, text)


# Of a mail, of a comment. An item begins so too, but holds one statement.
_QUOTE = re.compile(r"^[^\S\n]*(?:[>%] ?)+", re.MULTILINE)
_INNER_STOP = re.compile(r"[^\W\d_]{3}[.!?][\"')\]]* +[^\W_]")


def unquoted(text: str, fill: str) -> str:
    """`text` with `fill` for each sign of the marks that all its lines begin with.

    Not so where no line holds a stop within: list items.
    """
    if "\n" not in text or _QUOTE.match(text) is None or not _INNER_STOP.search(text):
        return text
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 2 or not all(map(_QUOTE.match, lines)):
        return text
    return _QUOTE.sub(lambda mark: fill * len(mark[0]), text)
