"""Decode B-, I- and O labels into entities, as the RaTEScore package does.

The package looks at the label of the next token, that of the closing special token included, and
remembers an end that it should have forgotten; scores depend on both, so both are kept:

- an entity ends where the next label is not I-, whatever type I- names;
- I- without a B- before it begins an entity only for its successor: alone it is dropped;
- an entity still open at the end runs to the last token, unless an entity before it was closed by
  a B- that followed at once, and nothing was closed by O since: then it is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def decode_labels(labels: Sequence[str], special: Sequence[bool]) -> list[tuple[int, int, str]]:
    """(first token, last token, type) of each entity, last included, in the package's order.

    Args:
        labels: "B-TYPE", "I-TYPE" or "O" of every token, special tokens included.
        special: True at [CLS] and [SEP], which never hold an entity.
    """
    spans: list[tuple[int, int, str]] = []
    start: int | None = None
    remembers_end = False
    kind = ""
    for token, (label, following) in enumerate(pairwise(labels)):
        if special[token] or label == "O":
            continue
        begins, goes_on = label.startswith("B-"), following.startswith("I-")
        if begins:
            start, kind = token, label[2:]
        if goes_on:
            continue
        if start is not None:
            spans.append((start, token, kind))
        start, kind, remembers_end = token, label[2:], True
        if following == "O":
            start, remembers_end = None, False
    if start is not None and not remembers_end:
        spans.append((start, len(labels) - 2, kind))
    return spans
