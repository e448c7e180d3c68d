"""Remembers whether image files decode, so that none is checked twice."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple
from pathlib import Path

from rrgdata.file_memory import FileMemory, Stamp, stamp_of
from rrgdata.images.read import ImageFacts

# To be raised whenever `read_image` refuses more, or less, than before.
VERSION = "9"

Verdict = ImageFacts | str
"""Facts of a file that decodes, or the line that says why it does not."""


class ImageMemory:
    """Remember verdicts on the image files of the data set at `root`, see `FileMemory`.

    body_parts: `data.body_parts`, by which files may pass that are refused without.
    """

    def __init__(self, root: Path, body_parts: Collection[str] = ()) -> None:
        rules = f"{VERSION} {sorted(body_parts)}" if body_parts else VERSION
        self._files = FileMemory("images", root, rules, "the next run checks the images again")

    def recall(self, paths: Iterable[Path]) -> dict[Path, Verdict]:
        """Return the verdicts on those of `paths` that have one and are unchanged."""
        verdicts = self._files.known(paths).items()
        return {p: _verdict(text) for p, (stamp, text) in verdicts if stamp == stamp_of(p)}

    def broken(self) -> dict[str, str]:
        """Return the unchanged files that do not decode: why, by absolute path."""
        verdicts = self._files.matching('"%')
        return {str(p): json.loads(text) for p, stamp, text in verdicts if stamp == stamp_of(p)}

    def keep(self, verdicts: Mapping[Path, tuple[Stamp, Verdict]]) -> None:
        """Remember verdicts on files, with the stamps they had before they were read."""
        self._files.keep((p, s, _text(verdict)) for p, (s, verdict) in verdicts.items())


def _text(verdict: Verdict) -> str:
    return json.dumps(verdict if isinstance(verdict, str) else astuple(verdict))


def _verdict(text: str) -> Verdict:
    v = json.loads(text)
    return v if isinstance(v, str) else ImageFacts(v[0], v[1], v[2], tuple(v[3]), tuple(v[4]), v[5])
