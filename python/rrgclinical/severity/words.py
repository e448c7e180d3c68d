"""Write what a value of severity was made of as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrgclinical.severity.table import Significance


def caveat(table: Significance) -> str:
    """Say whose weights a value has, and what it is not."""
    whose = "ours, no radiologist has set them"
    if table.own:
        whose = f"those of {table.own} (digest {table.digest})"
    return f"Severity's weights are {whose}; it is not GREEN, it is not CRIMSON."


def in_words(note: Mapping[str, Any]) -> str:
    """Write a note of `SeverityJudgement.explain` as a line, costs included."""
    parts = [f"severity {note['score']:.3f}"]
    right = [one["finding"] for one in note["right"]]
    parts += [f"right: {', '.join(right)}"] if right else []
    differs = [
        f"{one['finding']} ({'; '.join(one['differs'] or ['weight'])}, costs {one['cost']:g})"
        for one in note["differs"]
    ]
    parts += [f"differs: {', '.join(differs)}"] if differs else []
    for key in ("missed", "invented"):
        listed = [
            f"{one['finding']} (costs {one['cost']:g}{', denied' if one.get('denied') else ''})"
            for one in note[key]
        ]
        parts += [f"{key}: {', '.join(listed)}"] if listed else []
    if note["contradicted"]:
        parts.append(f"affirmed and denied: {', '.join(note['contradicted'])}")
    denials = note["denials"]
    parts.append(f"denials {denials['said']:g} of {denials['of']:g}")
    if note["style"] < 1:
        parts.append(f"length and repetition leave {note['style']:g}")
    return "; ".join(parts)
