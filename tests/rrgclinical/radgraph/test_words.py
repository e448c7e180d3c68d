"""Words are those of the package's preprocessing, written here as it is: replace, join, split."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import wordpunct_tokenize

from rrgclinical.radgraph.words import split_words

_PARTS = [*"ab%).,'\"\\nfu2 \n\t\x0b\x1c\x85\u3000-_/?!:(\u0301\u200d\u200bé😀心"]
_PARTS += ["\\n", "\\f", "\\u2122", '\\"', ").", "%.", ".'", "%,", "%)"]


def xl_words(text: str) -> list[str]:
    for escape, spaces in (("\\n", 2), ("\\f", 2), ("\\u2122", 6), ("\n", 1)):
        text = text.replace(escape, " " * spaces)
    text = re.sub(r"\s+", " ", text.replace('\\"', "``"))
    joined = " ".join(wordpunct_tokenize(text))
    for marks in (").", "%.", ".'", "%,", "%)"):
        joined = joined.replace(marks, " ".join(marks))
    return joined.split()


def first_words(text: str) -> list[str]:
    spaced = re.sub(r"(?<! )(?=[/,:.!?()])|(?<=[/,:.!?()])(?! )", " ", text)
    return spaced.split()


@settings(max_examples=400)
@given(st.lists(st.sampled_from(_PARTS), max_size=16).map("".join))
@example("cafe\u0301 \u200d\x1c).'%.")
def test_words_are_official(text):
    for model_type, wanted in (("radgraph", first_words), ("radgraph-xl", xl_words)):
        found = split_words(text, model_type)
        assert [word for word, _, _ in found] == wanted(text)
        ends = 0
        for word, start, end in found:
            assert ends <= start < end
            assert text[start:end] == word or "``" in word
            ends = end
