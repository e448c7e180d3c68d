"""Collects the studies of a data set, the broken ones, and counts of those left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rrgtrain.data.study import Study
from rrgtrain.errors import UserError

SHOWN = 3
"""Broken studies that an error tells in full."""


@dataclass(frozen=True)
class Wanted:
    """Settings that a loader reads: the `data.*` keys of the same names."""

    images: str = "all"
    """Views that are read: "all", "frontal", or "none", which looks for no image file."""
    sections: str = "findings"
    """Text that is the report where a data set keeps the sections apart: "findings",
    "impression", or "both", findings first."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of a table of one's own, by what they hold."""


@dataclass(frozen=True)
class Broken:
    """A study that cannot be used; `where` names it by id and place, `why` says what to mend."""

    where: str
    why: str


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
        self.notes: list[str] = []
        """Lines to print once, such as how many labels were absent."""
        self._places: dict[str, str] = {}

    def add(self, study: Study, where: str) -> None:
        """Add a study to its split; one whose id is taken already is broken."""
        first = self._places.setdefault(study.id, where)
        if first != where:
            self.add_broken(where, f"repeats the id {study.id!r} of {first}; ids must be unique")
        else:
            self.studies.setdefault(study.split, []).append(study)

    def add_broken(self, where: str, why: str) -> None:
        """Note a study that cannot be used, and why; `where` names file, place and id."""
        self.broken.append(Broken(where, why))

    def leave_out(self, rule: str, count: int = 1) -> None:
        """Count studies that a rule leaves out."""
        self.left_out[rule] += count

    def check(self, root: Path) -> None:
        """Raise UserError where studies are broken: the first three, and how many more."""
        if self.broken:
            told = "; ".join(f"{b.where}: {b.why}" for b in self.broken[:SHOWN])
            more = len(self.broken) - SHOWN
            rest = f"; and {more} more" if more > 0 else ""
            raise UserError(
                f"{told}{rest}. `rrgtrain data check {root}` lists all; data.skip=true leaves "
                "them out"
            )
