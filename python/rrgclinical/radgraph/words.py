"""A report as the words RadGraph reads, each tied to its characters.

The XL models split runs of letters from runs of other characters (nltk's `wordpunct_tokenize`),
then five pairs of punctuation marks; the first model splits at white space and around ten marks.
The package gets there by inserting spaces into the text and splitting again; here the words are
found where they stand, so their spans are those of the report as given.
"""

from __future__ import annotations

import re

import regex

MODEL_TYPES = ("radgraph", "radgraph-xl", "modern-radgraph-xl")

# What the package reads in place of an empty report. It scores such a report 0 before looking.
EMPTY = "None"

_FIRST = re.compile(r"[/,:.!?()]|[^\s/,:.!?()]+")
# nltk compiles with `regex` since 3.10, where a combining mark belongs to its letter; before, with
# `re`, where it stands alone. White space is what `re` calls so, in either.
_XL = regex.compile(r"\w+|[^\w\s]+")
_SPACE = re.compile(r"\s")
_INSIDE_MARKS = re.compile(r"(?<=\))(?=\.)|(?<=%)(?=[.,)])|(?<=\.)(?=')")

# Escapes that a JSON dump leaves in reports. All but the last become spaces of their own length.
_ESCAPES = (("\\n", "  "), ("\\f", "  "), ("\\u2122", " " * 6), ('\\"', "``"))


def split_words(report: str, model_type: str) -> list[tuple[str, int, int]]:
    """(word, start, end) of every word, in order; characters start:end of `report`.

    The word is `report[start:end]`, but for an escaped quotation mark, which reads "``".
    """
    if model_type == "radgraph":
        return [(match.group(), *match.span()) for match in _FIRST.finditer(report)]
    text = report
    for escape, replacement in _ESCAPES:
        text = text.replace(escape, replacement)
    text = _SPACE.sub(" ", text)
    words = []
    for match in _XL.finditer(text):
        start, end = match.span()
        cuts = [cut.start() for cut in _INSIDE_MARKS.finditer(text, start, end)]
        for low, high in zip([start, *cuts], [*cuts, end], strict=True):
            words.append((text[low:high], low, high))
    return words


def spelling(word: str) -> str:
    """Spell a word for the encoder: two marks of older corpora lose their stroke."""
    return word[1:] if word in ("/.", "/?") else word
