"""Collects a data set's studies, its broken ones, and counts of those left out."""

from __future__ import annotations

import json
import os.path
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgclinical.common.nothing import BLANKS, LONGEST_SHOWN, NothingRead, is_nothing
from rrgclinical.common.rtf import from_rtf, is_rtf
from rrgclinical.common.shown import hidden, shortened
from rrgclinical.common.spreadsheets import LOST_DIGITS, lost_digits
from rrgclinical.rules import glued, join_lines
from rrgdata.sections import ReportSections
from rrgdata.study import Study

SHOWN = 3
"""Broken studies that an error tells in full."""
LONGEST_WHERE, LONGEST_WHY = 500, 2_000
"""Characters that are kept of a broken study's place and fault: a cell may have millions."""
LOOKED_FOR = 20_000
"""Images that are looked for before anything is read; on a network disk more would take minutes."""
_ENGLISH = re.compile(r"\b(?:the|no|is|of|and|with)\b", re.IGNORECASE)
FEWEST = 10
"""Reports from which on their language is told."""
_WORD = re.compile(r"[^\W\d_]{2}")


@dataclass(frozen=True)
class ReadSettings:
    """Settings that a loader reads: the `data.*` keys of the same names."""

    images: str = "all"
    """Views that are read: "all", "frontal", or "none", which looks for no image file."""
    sections: str = "findings"
    """Text that is the report where a data set keeps the sections apart: "findings",
    "impression", or "both", findings first."""
    prior: str = "none"
    """Earlier studies whose images are added: "none", or the patient's "last" one."""
    reports: str | None = None
    """Directory of the report texts where they are not beneath the root."""
    boxes: bool = False
    """Whether sentences are followed by the boxes of their findings."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of a table of one's own, by what they hold."""


@dataclass(frozen=True)
class Broken:
    """A study that cannot be used.

    `where` names its file, place and id, `why` begins with a verb and says what to mend:
    "annotation.json: train[3] (CXR7)" and "has an empty report; write one or drop the study".
    """

    where: str
    why: str

    def line(self) -> str:
        return hidden(json.dumps({"where": self.where, "why": self.why})) + "\n"


def traits_of(*sections: str) -> tuple[bool, str]:
    """Tell whether a section is RTF, and the first words that glue statements."""
    text, words = "\n\n".join(sections), ""
    if places := glued(text):
        words = text[: places[0]].split()[-1] + text[places[0] :].split()[0]
    return any(map(is_rtf, sections)), shortened(words, LONGEST_SHOWN)


class Wording:
    """Counts reports in another language than English, in RTF, and with glued statements."""

    def __init__(self) -> None:
        self.reports = self.foreign = self.rtf = 0
        self.glued: list[str] = []
        """The words at the first place of each report that glues statements."""

    def add(self, text: str) -> None:
        """Count a report as it was written; one without a word is none."""
        if _WORD.search(text) is None:
            return
        self.reports += 1
        self.foreign += _ENGLISH.search(text) is None
        self.note(*traits_of(text))

    def note(self, rtf: bool, words: str) -> None:
        """Count the `traits_of` a text that is made plain before `add` meets it."""
        self.rtf += rtf
        self.glued += [words] if words else []

    def lines(self) -> list[str]:
        """Write a line for each trait that somebody should know of."""
        lines = []
        if self.reports >= FEWEST and 2 * self.foreign > self.reports:
            lines.append(
                f"{self.foreign} of {self.reports} reports have none of the words the, no, is, of, "
                "and, with: are they English? rules, CheXbert and RadGraph read no other language; "
                "translate them, or leave out the rewards and metrics that read them"
            )
        if self.rtf:
            lines.append(f"{self.rtf} reports are documents in RTF, of which the text is read")
        if self.glued:
            lines.append(
                f"{len(self.glued)} reports glue statements, as {self.glued[0]!r}, and are read "
                "with a line end there; what made the text dropped line ends or list items"
            )
        return lines


class NoImageColumn(UserError):
    """Says that a table has no column of images."""


class Catalogue:
    """Holds what a loader finds under a root.

    A file that makes the whole data set unreadable is a UserError of the loader; a defect of one
    study goes to `add_broken`, so that `data.skip` can leave that study out.
    """

    def __init__(self) -> None:
        self.studies: dict[str, list[Study]] = {}
        self.broken: list[Broken] = []
        self.left_out: Counter[str] = Counter()
        """How many studies a stated rule leaves out, by the rule: "without a findings section"."""
        self.left_out_of: dict[str, Counter[str]] = {}
        """The same by rule and split, as far as the split is known."""
        self.notes: list[str] = []
        """Lines to print once, such as how many labels were absent."""
        self.nothing = NothingRead()
        """Counts the texts that a marker of nothing, as NA, made empty."""
        self.wording = Wording()
        """Counts the reports that are not read as they stand."""
        self._places: dict[str, str] = {}
        self._to_look_for = LOOKED_FOR

    def read(self, value: Any, name: str, where: str, *, context: bool = False) -> Any:
        """Return a text as `NothingRead.read`; of the context, "None." stays and RTF is read."""
        if context and isinstance(value, str) and is_rtf(value):
            value = " ".join(from_rtf(value).split())
        return self.nothing.read(value, name, where, dictated=context)

    def report(self, parts: ReportSections, sections: str) -> str:
        """Return the text that `data.sections` asks for, see `ReportSections.report`."""
        if sections == "both":  # which makes it plain
            self.wording.note(*traits_of(parts.findings or parts.unheaded, parts.impression))
        return parts.report(sections)

    def add(self, study: Study, where: str) -> None:
        """Add a study to its split, its report as `join_lines` writes it.

        One whose id is taken already is broken. So is one whose report says nothing, as a marker or
        markup alone, but where it has labels, which stand alone.
        """
        written = study.report
        if study.report is not None:
            self.wording.add(study.report)
            study = replace(study, report=join_lines(study.report))
        if study.report is not None and is_nothing(study.report):
            if written and written.strip(BLANKS):
                self.nothing.count(written.strip(BLANKS), "report", where)
            if study.labels is None:
                fault = f"has an empty report; write one or drop the study: it is {written!r}"
                self.add_broken(where, fault)
                return
            study = replace(study, report=None)
        if lost := next(filter(lost_digits, (study.id, study.patient)), None):
            self.add_broken(where, f"has the id {lost}; {LOST_DIGITS}")
            return
        first = self._places.setdefault(study.id, where)
        if first != where:
            self.add_broken(where, f"repeats the id {study.id!r} of {first}; ids must be unique")
        else:
            self.studies.setdefault(study.split, []).append(study)

    def add_broken(self, where: str, why: str) -> None:
        """Note a study that cannot be used, and why; `where` names file, place and id."""
        self.broken.append(Broken(shortened(where, LONGEST_WHERE), shortened(why, LONGEST_WHY)))

    def add_broken_images(self, why: Mapping[str, str]) -> None:
        """Move the studies that have one of these images, absolute paths, to the broken ones."""
        if not why:
            return
        for split, studies in self.studies.items():
            whole = []
            for study in studies:
                paths = (os.path.abspath(image.path) for image in study.images)
                defect = next((why[path] for path in paths if path in why), None)
                if defect is None:
                    whole.append(study)
                else:
                    self.add_broken(f"{self._places[study.id]}", f"has the image {defect}")
            self.studies[split] = whole

    def leave_out(self, rule: str, count: int = 1, *, split: str = "") -> None:
        """Count studies that a rule leaves out, of a split where that is known."""
        self.left_out[rule] += count
        if split:
            self.left_out_of.setdefault(rule, Counter())[split] += count

    def note_passed_over(self, studies: Collection[str]) -> None:
        if studies:
            self.notes.append(
                f"{len(studies)} studies are no prior of later ones, which have another split"
            )

    def image_defect(self, path: Path) -> str | None:
        """Look for an image file: None, or what is wrong with it.

        Only the first 20,000 are looked for; what is wrong with a later one is found when it is
        read, or by `rrgtrain data check`.
        """
        if self._to_look_for == 0:
            return None
        self._to_look_for -= 1
        try:
            size = path.stat().st_size if path.is_file() else None
        except (OSError, ValueError):  # a NUL in the name, or a name of more than 255 bytes
            size = None
        if size is None:
            return "not found"
        return None if size else "an empty file"

    def lines(self) -> list[str]:
        """Write the counts of studies left out and the notes, a line each."""
        lines = []
        for rule, count in self.left_out.items():
            of = ", ".join(f"{split} {n}" for split, n in self.left_out_of.get(rule, {}).items())
            lines.append(f"{count} studies {rule} left out" + (f": {of}" if of else ""))
        return [*lines, *self.nothing.lines(), *self.wording.lines(), *self.notes]

    def check(self, root: Path) -> None:
        """Raise UserError where studies are broken: the first three, and how many more."""
        if self.broken:
            examples = "; ".join(f"{b.where} {b.why}" for b in self.broken[:SHOWN])
            more = len(self.broken) - SHOWN
            rest = f"; and {more} more" if more > 0 else ""
            place = f"{root}: " if root.is_dir() else ""  # a table's rows begin with its name
            path = shlex.quote(str(root))
            raise UserError(
                f"{place}{examples}{rest}. `rrgtrain data check {path}` lists all; "
                "data.skip=true leaves them out"
            )
