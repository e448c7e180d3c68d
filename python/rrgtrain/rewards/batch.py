"""Read labels and entities of reports and references once for all terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rrgclinical import Entities
from rrgclinical.cached import CachedExtractor, CachedLabeller
from rrgclinical.common.stopwatch import ExclusiveTimer
from rrgdata.study import Study
from rrgtrain.errors import UserError
from rrgtrain.rewards.corpus import Corpus
from rrgtrain.rewards.labellers import SpreadLabeller
from rrgtrain.schema import RewardSettings

T = TypeVar("T")


@dataclass(frozen=True)
class RewardBatch:
    """R reports beside the studies they describe.

    `reports` is the scored text of each completion in `completions`: all of it, or what its
    `<report>` block holds. Everything derived is computed at most once per batch, however many
    terms read it. `open` gives the model of a name (an extractor, or what `rewards.term_models`
    offers); `notes` takes what a term wants kept for inspection: one JSON-able value per report.
    `readings` collects what terms read in references, by name, for `RewardService.prefetch`.
    """

    completions: Sequence[str]
    reports: Sequence[str]
    studies: Sequence[Study]
    labeller: CachedLabeller
    extractor: CachedExtractor
    settings: RewardSettings
    corpus: Corpus
    open: Callable[[str], Any]
    watch: ExclusiveTimer = field(default_factory=ExclusiveTimer)
    notes: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    readings: dict[str, Callable[[RewardBatch], Any]] = field(default_factory=dict)
    _found: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """`compute()`, kept under `name` for the terms that ask next and timed as it."""
        if name not in self._found:
            with self.watch.measure(name):
                self._found[name] = compute()
        return self._found[name]

    def of_references(self, name: str, read: Callable[[RewardBatch], T]) -> T:
        """Return `read(self)`, computed once.

        `read` must look at the references alone: `prefetch` calls it before there are reports.
        """
        self.readings[name] = read
        return self.once(name, lambda: read(self))

    @property
    def references(self) -> list[str]:
        """The reports of the studies; UserError where one has none."""
        return references_of(self.studies)

    @property
    def report_labels(self) -> np.ndarray:
        """[R, 14] class ids of the reports."""
        return self.once("labels", lambda: self.labeller.label(self.reports))

    @property
    def reference_labels(self) -> np.ndarray:
        """[R, 14] class ids of the references, or the studies' own labels."""
        return self.of_references(
            "reference labels",
            lambda batch: truth_of(batch.studies, batch.labeller, batch.settings.against),
        )

    @property
    def report_entities(self) -> Entities:
        """Entities of the reports, by the recipe's extractor."""
        return self.entities()[0]

    @property
    def reference_entities(self) -> Entities:
        """Entities of the references, by the recipe's extractor."""
        return self.entities()[1]

    def entities(self, name: str | None = None) -> tuple[Entities, Entities]:
        """Entities of reports and references, by the extractor `name` or the recipe's own."""
        name = name or self.settings.extractor
        extractor = self.extractor if name == self.settings.extractor else self.open(name)
        references = self.of_references(
            f"reference entities {name}",
            lambda batch: extractor.extract(batch.references, keep=True),
        )
        return self.once(f"entities {name}", lambda: extractor.extract(self.reports)), references


def references_of(studies: Sequence[Study]) -> list[str]:
    """The reports of the studies; UserError names the first that has none."""
    missing = next((s.id for s in studies if s.report is None), None)
    if missing is not None:
        raise UserError(
            f"study {missing} has no reference report, but a reward term compares with one; "
            "use reward.against=labels and the terms mccs or label_f1"
        )
    return [s.report or "" for s in studies]


def truth_of(
    studies: Sequence[Study], labeller: CachedLabeller | SpreadLabeller, against: str
) -> np.ndarray:
    """Choose the true class ids [R, 14]: of the references, or the studies' own."""
    if against == "report":
        return labeller.label(references_of(studies), keep=True)
    missing = next((s.id for s in studies if s.labels is None), None)
    if missing is not None:
        raise UserError(
            f"study {missing} has no labels, but reward.against=labels compares with them; "
            "use reward.against=report"
        )
    return np.asarray([s.labels for s in studies], dtype=np.int8).reshape(len(studies), -1)
