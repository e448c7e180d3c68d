"""Compile phrase tables to a word trie, for the longest phrase at a word."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rrgclinical.rules.spelling import plain_spelling

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
            self._give(words, role)

    def add_word(self, word: str, role: Any) -> None:
        """Give `word`, taken literally, one more role."""
        self._give((word,), role)

    def compile(
        self,
        entry: Callable[[tuple[Any, ...]], Any] = tuple,
        aliases: Mapping[str, str] | None = None,
    ) -> PhraseTable:
        """Freeze the table: build the lemmas, by any spelling too, and the trie.

        `entry` makes of a phrase's roles the entry that `find` gives. `aliases` are words read as
        another word, in phrases too.
        """
        words = {word for phrase in self._phrases for word in phrase}
        singular = {form: word for word in sorted(words) for form in _plurals(word)}
        self.lemma = {word: singular.get(word, word) for word in (*singular, *words)}
        self.lemma.update(aliases or {})
        self.spelt = {plain_spelling(form): lemma for form, lemma in self.lemma.items()}
        growing: dict[str, Any] = {}
        for phrase, roles in self._phrases.items():
            node = growing
            for word in phrase:
                node = node.setdefault(self.lemma[word], {})
            before = node.get(_END, ())
            node[_END] = (*before, *(role for role in roles if role not in before))
        self.root = _frozen(growing, entry)[1] or {}
        return self

    def _give(self, words: tuple[str, ...], role: Any) -> None:
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
    if word.endswith(("s", "x", "ch", "sh")):
        return (word + "es",)
    return (word + "s",)
