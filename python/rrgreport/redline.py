"""An edit as kept, removed and added pieces of text, in reading order."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

KEPT, REMOVED, ADDED = "kept", "removed", "added"


@dataclass(frozen=True)
class Piece:
    """A piece of text; `rule` is the letter of its edit, empty where unknown."""

    text: str
    kind: str
    rule: str = ""


def redline(before: str, after: str, steps: Sequence[tuple[str, str, str]]) -> list[Piece]:
    """Pieces whose kept and removed text is `before`, and kept and added text `after`.

    Both up to white space. Steps are replayed one by one; should they not lead from `before`
    to `after`, the words of the two are compared instead and the pieces carry no rule.
    """
    pieces = [Piece(before, KEPT)] if before else []
    for rule, removed, added in steps:
        pieces = _replay(pieces, rule, removed, added)
    if _words(_text(pieces, KEPT, ADDED)) == _words(after):
        return pieces
    return _compare(before, after)


def quoted(reference: str, added: Sequence[str]) -> list[tuple[str, bool]]:
    """Cut the reference into pieces, and tell which of them an edit took."""
    bounds = [
        (at, at + len(s)) for s in dict.fromkeys(added) if s and (at := reference.find(s)) >= 0
    ]
    pieces, end = [], 0
    for begin, stop in sorted(bounds):
        if begin < end:
            continue
        pieces += [(reference[end:begin], False), (reference[begin:stop], True)]
        end = stop
    pieces.append((reference[end:], False))
    return [piece for piece in pieces if piece[0]]


def _replay(pieces: list[Piece], rule: str, removed: str, added: str) -> list[Piece]:
    new = [Piece(added, ADDED, rule)] if added else []
    if not removed:
        return pieces + new
    for i, piece in enumerate(pieces):
        at = piece.text.find(removed)
        if piece.kind == REMOVED or at < 0:
            continue
        head, tail = piece.text[:at], piece.text[at + len(removed) :]
        # What an earlier step added and this one takes back was never in `before`.
        gone = [Piece(removed, REMOVED, rule)] if piece.kind == KEPT else []
        middle = [
            Piece(head, piece.kind, piece.rule),
            *gone,
            *new,
            Piece(tail, piece.kind, piece.rule),
        ]
        return pieces[:i] + [p for p in middle if p.text] + pieces[i + 1 :]
    return pieces


def _compare(before: str, after: str) -> list[Piece]:
    old, new = re.findall(r"\S+\s*", before), re.findall(r"\S+\s*", after)
    matcher = difflib.SequenceMatcher(
        a=[w.strip() for w in old], b=[w.strip() for w in new], autojunk=False
    )
    pieces = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(Piece("".join(new[c:d]), KEPT))
            continue
        pieces += [Piece("".join(old[a:b]), REMOVED)] if b > a else []
        pieces += [Piece("".join(new[c:d]), ADDED)] if d > c else []
    return pieces


def _text(pieces: list[Piece], *kinds: str) -> str:
    return " ".join(p.text for p in pieces if p.kind in kinds)


def _words(text: str) -> list[str]:
    return text.split()
