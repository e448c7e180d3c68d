"""Compile phrase tables to a word trie, for the longest phrase at a word.

A British or misspelt word is read as the word of the tables. A misspelt word and the one that was
meant are one slip of the keys apart: a letter dropped, added or doubled, two neighbours swapped, or
one vowel for another (Damerau, 1964). Short words, first letters and endings are left alone, since
there a slip makes another word: "resolve" is not "resolved", "plural" is not "pleural". Words that
deny or doubt are read so at any length; the commonest slips in short findings are listed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_SHORTEST = 8
"""Letters of the shortest word that is read with a slip."""
_VOWELS = frozenset("aeiouy")
# British forms, turned into American ones: "-ise", "-yse", "-our", "ae", "oe", "-tre", "-lled",
# "sulph". Both a table's words and those of a text are read so, hence either may hold either.
_BRITISH = (
    (re.compile(r"(?<=..)([iy])s(?=(?:e[drs]?|es|ing|ations?|able)$)"), r"\1z"),
    (re.compile(r"(?<=..)our(?!c)"), "or"),
    (re.compile(r"[ao]e(?=.)(?=.*.{3})"), "e"),
    (re.compile(r"(?<=[bt])re(?=[ds]?$)"), "er"),
    (re.compile(r"(?<=[aeiou])ll(?=(?:ed|ing|ers?|ations?)$)"), "l"),
    (re.compile(r"ulph"), "ulf"),
)
_ONE_SYLLABLE = re.compile(r"[^aeiouy]*[aeiouy]+ll")
# Words that deny or doubt are read with a slip whatever their length, for what hangs on them.
_WORDS = """
    no nil not none never seen cannot without absent absence exclude excluded ruled unable resolved
    cleared negative evident evidence visible visualized unlikely likely possible probable question
    suspected
"""
_ASSERTING = tuple(_WORDS.split())
_SHORT = 4
"""Letters up to which such a word is known with a letter doubled or two swapped, else not."""
_LISTED = {
    wrong: right
    for right, wrongs in {
        "not": "isnt arent wasnt werent doesnt didnt dont hasnt havent cant couldnt",
        "absence": "abscence absense abcense abcence",
        "absent": "abscent",
        "seen": "sen",
        "visualized": "vizualized",
        "resolved": "recolved",
        "excluded": "exclued",
        "effusion": "efusion effsion effusin effuson",
        "edema": "edma edemia edeema edmea eedema",
        "cardiomegaly": "cardiogemaly cardiomagely cardiomelagy",
        "pneumonia": "pnemonia pneumona",
        "pleural": "pleual pleral plerual plueral pleurla",
        "infectious": "infective",
        "opacity": "opacty opcity opactiy",
        "atelectasis": "atelctasis atlectasis",
    }.items()
    for wrong in wrongs.split()
}


def plain_spelling(word: str) -> str:
    """`word`, in lower case, with its British forms made American."""
    if len(word) < 5:
        return word
    for pattern, american in _BRITISH:
        if "ll" in pattern.pattern and _ONE_SYLLABLE.match(word):
            continue  # "filled" is not "filed"
        word = pattern.sub(american, word)
    return word


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
        listed = _LISTED.get(word) or _asserting(word)
        if listed is not None:
            return self._lemmas.get(listed)
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


def _asserting(word: str) -> str | None:
    """The one word that denies or doubts a slip away from `word`."""
    meant = [right for right in _ASSERTING if _is_near(word, right)]
    return meant[0] if len(meant) == 1 else None


def _is_near(word: str, right: str) -> bool:
    if word[0] != right[0] or abs(len(word) - len(right)) > 1:
        return False
    doubled = any(
        word[place - 1] == word[place] and word[:place] + word[place + 1 :] == right
        for place in range(1, len(word))
    )
    swapped = any(
        right[:place] + right[place + 1] + right[place] + right[place + 2 :] == word
        for place in range(1, len(right) - 1)
    )
    if doubled or swapped or len(right) <= _SHORT:
        return doubled or swapped
    changed = [pair for pair in zip(word, right, strict=False) if pair[0] != pair[1]]
    vowel = len(word) == len(right) and len(changed) == 1 and _VOWELS.issuperset(changed[0])
    return vowel or word == right[:-1] or _is_slip(word, right)


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


_END = ""
_LATIN = (("us", "i"), ("um", "a"), ("ex", "ices"), ("oma", "omata"), ("la", "lae"))

Node = tuple[Any, "dict[str | None, Node] | None"]
"""Entry of the phrase that ends here, and nodes of the next word; None where there is none."""


class PhraseTable:
    """Phrases with the roles they play: a tuple of values, in order of addition.

    A phrase is words separated by spaces: `a|b` stands for either word, a closing `?` makes a
    word optional. Regular and Latin plurals of every word match too. Text words are lower case.
    """

    def __init__(self) -> None:
        self.root: dict[str | None, Node] = {}
        self.lemma: dict[str, str] = {}
        self.spelt: dict[str, str] = {}
        self._phrases: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def add(self, phrase: str, role: Any) -> None:
        """Give every reading of `phrase` one more role; the same role twice counts once."""
        for words in expand(phrase):
            self.give(words, role)

    def compile(
        self,
        entry: Callable[[tuple[Any, ...]], Any] = tuple,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """Freeze the table: build the lemmas, by any spelling too, and the trie.

        `entry` makes of a phrase's roles the entry that `find` gives. `aliases` are words read as
        another word, in phrases too.
        """
        words = {word for phrase in self._phrases for word in phrase}
        singular = {form: word for word in sorted(words) for form in _plurals(word)}
        self.lemma = {word: singular.get(word, word) for word in (*singular, *words)}
        for word, meant in (aliases or {}).items():
            self.lemma.update(dict.fromkeys((word, *_plurals(word)), meant))
        self.spelt = {plain_spelling(form): lemma for form, lemma in self.lemma.items()}
        growing: dict[str, Any] = {}
        for phrase, roles in self._phrases.items():
            node = growing
            for word in phrase:
                node = node.setdefault(self.lemma[word], {})
            before = node.get(_END, ())
            node[_END] = (*before, *(role for role in roles if role not in before))
        self.root = _frozen(growing, entry)[1] or {}

    def give(self, words: tuple[str, ...], role: Any) -> None:
        """Give `words`, taken literally, one more role."""
        roles = self._phrases.get(words, ())
        if role not in roles:
            self._phrases[words] = (*roles, role)

    def find(self, words: list[str | None]) -> list[tuple[Any, int, int]]:
        """(entry, first, last + 1) of the phrases in `words`, leftmost longest, disjoint.

        `words` are lemmas (`self.lemma`), None for a word the table does not know.
        """
        found = []
        root, count, position = self.root, len(words), 0
        while position < count:
            node = root.get(words[position])
            first, position = position, position + 1
            if node is None:
                continue
            entry, following = node
            ahead = position
            while following is not None and ahead < count:
                node = following.get(words[ahead])
                if node is None:
                    break
                ahead += 1
                longer, following = node
                if longer is not None:
                    entry, position = longer, ahead
            if entry is not None:
                found.append((entry, first, position))
        return found


def _frozen(growing: dict[Any, Any], entry: Callable[[tuple[Any, ...]], Any]) -> Node:
    following = {word: _frozen(node, entry) for word, node in growing.items() if word != _END}
    return entry(growing[_END]) if _END in growing else None, following or None


def phrases_of(text: str) -> tuple[str, ...]:
    """The phrases of a comma-separated text; white space of any length is one space."""
    return tuple(filter(None, (" ".join(phrase.split()) for phrase in text.split(","))))


def expand(phrase: str) -> Iterable[tuple[str, ...]]:
    """The word sequences a phrase stands for."""
    choices = []
    for word in phrase.split():
        optional = word.endswith("?") and len(word) > 1
        options = (word[:-1] if optional else word).split("|")
        choices.append([*options, None] if optional else options)
    for words in itertools.product(*choices):
        kept = tuple(word for word in words if word is not None)
        if kept:
            yield kept


def _plurals(word: str) -> Iterable[str]:
    if not word.isalpha() or len(word) < 3:
        return ()
    if word.endswith("y") and word[-2] not in "aeiou":
        return (word[:-1] + "ies",)
    if word.endswith("is"):
        return (word[:-2] + "es",)
    for ending, plural in _LATIN:
        if word.endswith(ending) and len(word) > 4:
            return (word + ("es" if ending == "us" else "s"), word[: -len(ending)] + plural)
    return (word + "es",) if word.endswith(("s", "x", "ch", "sh")) else (word + "s",)
