"""Read what all terms share once: labels, entities, blocks, training statistics.

`<think>` and `<report>` blocks (MRG-R1) say what of a completion is scored.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rrgclinical import Entities, to_binary
from rrgclinical.cached import CachedExtractor, CachedLabeller
from rrgclinical.common.stopwatch import ExclusiveTimer
from rrgdata.study import Study
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.rewards.term_models import SpreadLabeller
from rrgtrain.schema import RewardSettings

THINK, REPORT = "think", "report"


class Blocks(NamedTuple):
    """think, report: text inside the first complete block of the name, None without one.

    format: the format reward of the whole text, one of 0, 1/4, 1/2, 3/4, 1.
    """

    think: str | None
    report: str | None
    format: float


def parse_blocks(text: str) -> Blocks:
    """Reads the blocks of a completion.

    A block is an opening tag and the first closing tag of its name after it, in lower case. The
    format reward (MRG-R1, section III, which leaves the partial credit open) is 1/4 where both
    blocks are present, and only then 1/4 more for each of: in order (`</think>` before
    `<report>`), balanced (each of the four tags exactly once), and neither block empty.
    """
    think, report = _span(text, THINK), _span(text, REPORT)
    value = 0.0
    if think is not None and report is not None:
        once = all(text.count(tag) == 1 for name in (THINK, REPORT) for tag in _tags(name))
        filled = all(text[a:b].strip() for a, b in (think, report))
        value = 0.25 * (1 + (think[1] < report[0]) + once + filled)
    return Blocks(_inside(text, think), _inside(text, report), value)


def report_of(text: str, blocks: str) -> str:
    """Cut the report from a completion: all of it, or its `<report>` block, else "".

    blocks: `reward.blocks`.
    """
    return parse_blocks(text).report or "" if blocks == "think_report" else text


def _tags(name: str) -> tuple[str, str]:
    return f"<{name}>", f"</{name}>"


def _span(text: str, name: str) -> tuple[int, int] | None:
    """Characters between the tags, for the first opening tag that is closed."""
    opening, closing = _tags(name)
    start = text.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = text.find(closing, start)
    return None if end < 0 else (start, end)


def _inside(text: str, span: tuple[int, int] | None) -> str | None:
    return None if span is None else text[span[0] : span[1]].strip()


# What the terms of ours need; a term of one's own has it counted when it asks, on each rank.
NEEDS = {
    "inverse_frequency": "prevalence",
    "cider": "document_frequency",
    "nlg": "document_frequency",
}


class DocumentFrequency(NamedTuple):
    """Counts of the training reports.

    reports: how many were counted. counts: in how many each n-gram (n = 1..4) occurs.
    """

    reports: int
    counts: Counter[tuple[str, ...]]


class Corpus:
    """Statistics of the training studies, each computed by `count` or when a term first asks.

    label: gives the `[R, 14]` class ids of all training studies, reports or labels as the
    recipe's `reward.against` says. reports: their texts, None where a study has none.
    """

    def __init__(
        self, reports: Sequence[str | None], label: Callable[[], np.ndarray] | None = None
    ) -> None:
        self._texts, self._label = [report for report in reports if report], label
        self._lock = threading.Lock()
        self._prevalence: np.ndarray | None = None
        self._frequency: DocumentFrequency | None = None

    def count(self, terms: Iterable[str], label: Callable[[], np.ndarray]) -> None:
        """Count now what the terms named need, each rank a share; all ranks call it.

        label: as that of the constructor, on all ranks at once. Where there is nothing to count,
        the term that asks says so.
        """
        needed = {NEEDS.get(term) for term in terms}
        if "prevalence" in needed and len(labels := label()):
            with self._lock:
                self._prevalence = _share_of_positives(labels)
        if "document_frequency" in needed and self._texts:
            counts: Counter[tuple[str, ...]] = Counter()
            for part in ranks.gather(_count(ranks.shard(self._texts))):
                counts.update(part)
            with self._lock:
                self._frequency = DocumentFrequency(len(self._texts), counts)

    def prevalence(self) -> np.ndarray:
        """float64 `[14]`: share of training studies in which each label is positive or uncertain.

        A label that never is counts as if it were in one study, so its inverse is finite.
        """
        with self._lock:
            if self._prevalence is None:
                labels = self._label() if self._label else np.zeros((0, 14), dtype=np.int8)
                if not len(labels):
                    raise UserError(
                        "there are no training studies to count label frequencies in; "
                        "pass them to RewardService.fit, or leave out inverse_frequency"
                    )
                self._prevalence = _share_of_positives(labels)
            return self._prevalence

    def document_frequency(self) -> DocumentFrequency:
        """Count all n-grams up to 4 in the training reports."""
        with self._lock:
            if self._frequency is None:
                if not self._texts:
                    raise UserError(
                        "there are no training reports to count n-grams in; "
                        "pass them to RewardService.fit, or leave out cider and nlg"
                    )
                self._frequency = DocumentFrequency(len(self._texts), _count(self._texts))
            return self._frequency


def _share_of_positives(labels: np.ndarray) -> np.ndarray:
    return np.maximum(to_binary(labels).sum(0), 1) / len(labels)


def _count(texts: Sequence[str]) -> Counter[tuple[str, ...]]:
    # Imported here: nltk takes a second, and most recipes have no text term.
    from rrgclinical.text import count_ngrams, tokens

    counts: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        counts.update(count_ngrams(tokens(text)).keys())
    return counts


T = TypeVar("T")


@dataclass(frozen=True)
class RewardBatch:
    """R reports beside the studies they describe.

    `reports` is the scored text of each completion in `completions`: all of it, or what its
    `<report>` block holds. Everything derived is computed at most once per batch, however many
    terms read it. `open` gives the model of a name (an extractor, or what `rewards.term_models`
    offers); `notes` takes what a term wants kept for inspection, one JSON-able value per report,
    where it is `noted`. `readings` collects what terms read in references, by name, for
    `RewardService.prefetch`.
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
    noted: bool = True
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
