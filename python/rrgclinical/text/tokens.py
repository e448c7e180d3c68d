"""PTB-like tokens made without Java, and what of words all metrics share.

Sentences of this project's splitter, nltk's Treebank tokenizer, lower case, without the punctuation
that pycocoevalcap drops. Texts are composed (NFC) first, so that an accented letter is one and the
same however it was typed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from nltk.tokenize import NLTKWordTokenizer

from rrgclinical.rules.sentences import split_sentences

ORDER = 4
_PUNCTUATION = {*"'`\".?!,:-;", "''", "``", "--"}
# As the Java program writes them in lower case; pycocoevalcap drops them in upper case only.
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_WORD = re.compile(r"[^\W\d_]+")
_TREEBANK = NLTKWordTokenizer()
# Several terms ask for the texts of one batch: at most those of MIMIC-CXR's test split, 3,858
# reports and their references. A long report is 17 KB.
_HELD = 1 << 13


@lru_cache(maxsize=_HELD)
def tokens(report: str) -> tuple[str, ...]:
    """Split a report into lower-cased PTB-like tokens without punctuation."""
    report = unicodedata.normalize("NFC", report)
    words: list[str] = []
    for start, end in split_sentences(report):
        words.extend(_TREEBANK.tokenize(report[start:end]))
    # "..." and the like go with the stops.
    spoken = (word for word in words if word not in _PUNCTUATION and word.strip("."))
    return tuple(_BRACKETS.get(word, word.lower()) for word in spoken)


def common_words(studies: Sequence[Sequence[str]], fewest: int) -> list[list[str]]:
    """Blank the words that fewer than `fewest` studies hold, in the texts of each.

    A line feed stands for each, so that its neighbours make no word of their own.
    """
    held = Counter(
        word for texts in studies for word in {w for text in texts for w in _WORD.findall(text)}
    )
    common = {word for word, count in held.items() if count >= fewest}

    def blanked(text: str) -> str:
        return _WORD.sub(lambda word: word[0] if word[0] in common else "\n", text)

    return [[blanked(text) for text in texts] for texts in studies]


def count_ngrams(words: Sequence[str], order: int = ORDER) -> Counter[tuple[str, ...]]:
    """Count the n-grams of 1 to `order` words."""
    return Counter(
        tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1)
    )


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Compute the length of the longest common subsequence of words.

    A column of the dynamic programme is one integer, as in Hyyrö (2004): a bit is 0 where the
    length rises by one.
    """
    where: dict[str, int] = {}
    for position, word in enumerate(one):
        where[word] = where.get(word, 0) | 1 << position
    full = (1 << len(one)) - 1
    rises = full
    for word in other:
        matches = rises & where.get(word, 0)
        rises = (rises + matches | rises - matches) & full
    return len(one) - rises.bit_count()
