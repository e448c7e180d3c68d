"""Read a misspelt word as the word of the tables that was meant.

The two are one slip of the keys apart: a letter dropped, added or doubled, two neighbours swapped,
or one vowel for another (Damerau, 1964). Short words, first letters and endings are left alone,
since there a slip makes another word: "resolve" is not "resolved", "plural" is not "pleural".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_SHORTEST = 8
"""Letters of the shortest word that is read with a slip."""
_VOWELS = frozenset("aeiouy")


class Spelling:
    """The words of `lemmas` (form to lemma), found by their misspellings."""

    def __init__(self, lemmas: Mapping[str, str]) -> None:
        self._lemmas = lemmas
        self._longest = 1 + max(map(len, lemmas))
        self._near: dict[str, list[str]] = {}
        for word, lemma in lemmas.items():
            if not _is_long(word) or (word != lemma and lemma.endswith(("d", "s"))):
                continue  # short, or no plural that anyone writes ("resolveds")
            for shorter in {word, *_without_one(word)}:
                self._near.setdefault(shorter, []).append(word)

    def lemma(self, word: str) -> str | None:
        """The one lemma a slip away from `word`; None where there is none, or several."""
        if len(word) > self._longest or not _is_long(word):
            return None
        candidates = {
            known
            for shorter in {word, *_without_one(word)}
            for known in self._near.get(shorter, ())
            if _is_slip(word, known)
        }
        lemmas = {self._lemmas[known] for known in candidates}
        return lemmas.pop() if len(lemmas) == 1 else None


def _is_long(word: str) -> bool:
    return len(word) >= _SHORTEST and word.isalpha()


def _without_one(word: str) -> Iterable[str]:
    return (word[:place] + word[place + 1 :] for place in range(1, len(word)))


def _is_slip(word: str, known: str) -> bool:
    start = 0
    while start < min(len(word), len(known)) and word[start] == known[start]:
        start += 1
    mine, theirs = word[start:], known[start:]
    if start == 0 or not mine or not theirs:
        return False  # another first letter, or the same word with another ending
    if len(mine) != len(theirs):
        return mine[1:] == theirs or mine == theirs[1:]
    swapped = mine[:2] == theirs[1::-1] and mine[2:] == theirs[2:]
    vowels = {mine[0], theirs[0]} <= _VOWELS and mine[1:] == theirs[1:] and len(mine) > 2
    return swapped or vowels
