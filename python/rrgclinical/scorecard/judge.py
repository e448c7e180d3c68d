"""Read the reports of systems, and score them beside a constant template."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rrgclinical.cached import CachedLabeller
from rrgclinical.common.errors import UserError
from rrgclinical.grounding import GROUNDING, NO_BOXES, has_boxes
from rrgclinical.metrics.registry import METRICS, WORDS, of_source
from rrgclinical.scorecard import card as cards
from rrgclinical.scorecard.pairs import Pairs
from rrgclinical.severity import Severity, SeverityJudgement, caveat
from rrgclinical.text import R2Gen, Tokenization, text_scores

TEMPLATE, NO_TEMPLATE = "constant template", "none"
GIVEN_TRUTH = "The truth is the labels that come with the references."


class Reader(Protocol):
    """Read the labels of reports, and measure them beside references by metrics' names."""

    labeller: CachedLabeller

    def measure(
        self, terms: Sequence[str], reports: Sequence[str], references: Sequence[str]
    ) -> Iterator[tuple[str, np.ndarray | UserError]]:
        """Yield float64 `[R]` by name, or why that metric failed."""
        ...

    def model(self, name: str) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Judge:
    """Score systems by one reader with one choice of settings.

    terms: metrics that the reader measures; absent: the reason for others. template: a normal
    report, scored for every study; "" for none. costs: words what reading has cost, for the notes.
    """

    reader: Reader
    settings: cards.CardSettings
    tokenization: Tokenization
    terms: Sequence[str]
    absent: Mapping[str, str]
    template: str = ""
    meteor: bool = True
    costs: Callable[[], list[str]] = list

    @property
    def read_truth(self) -> str:
        return f"The truth is what the labeller {self.settings.labeller} reads in the references."

    def truth(self, pairs: Pairs) -> tuple[np.ndarray, str]:
        """Choose the true labels of pairs, int8 `[R, 14]`; say where they are from.

        UserError where there are none with the references, and a study has no reference report.
        """
        if pairs.labels is not None:
            return pairs.labels, GIVEN_TRUTH
        lacking = [i for i, texts in zip(pairs.ids, pairs.references, strict=True) if not texts]
        if lacking:
            raise UserError(
                f"{len(lacking)} references have neither report nor labels (the first is "
                f"{lacking[0]!r}); add one"
            )
        texts, owner = _flat(pairs.references)
        labels = self.reader.labeller.label(texts, keep=True)
        line = self.read_truth
        if len(texts) > len(pairs.ids):
            line += (
                " Of several references of a study, half decide. Clinical scores and METEOR take "
                "the best one, RadCliQ the lowest value, ROUGE-L the best precision and recall, "
                "BLEU the closest length, CIDEr the mean."
            )
        return cards.joined_truth(labels, owner), line

    def card(
        self,
        pairs: Pairs,
        truth: np.ndarray,
        notes: Iterable[str],
        own_truth: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[cards.Scorecard, dict[str, cards.SystemReading]]:
        """Score the systems of pairs and the constant template; give what was read of each.

        own_truth: true labels of systems that are not judged by `truth`.
        """
        systems, said = dict(pairs.systems), list(notes)
        if self.template.strip().lower() not in ("", NO_TEMPLATE):
            if TEMPLATE in systems:
                raise UserError(
                    f"a system is called {TEMPLATE!r}, as the baseline is; name it NAME=FILE, or "
                    f"set eval.template={NO_TEMPLATE}"
                )
            systems[TEMPLATE] = [self.template] * len(pairs.ids)
            said.append(f"{TEMPLATE}: {self.template!r} for every study.")
        absent = dict(self.absent)
        whole = all(pairs.references)
        if not whole:
            reason = "not every study has a reference report"
            absent = dict.fromkeys([*self.terms, *of_source(WORDS)], reason) | absent
        readings = {
            name: self._reading(reports, pairs.references if whole else None, absent)
            for name, reports in systems.items()
        }
        # a metric is of all systems or of none
        readings = {
            name: dataclasses.replace(_without(one, absent), truth=(own_truth or {}).get(name))
            for name, one in readings.items()
        }
        if self.settings.labeller == "rules":
            said.append("Labels and entities are by rules; they are not CheXbert's or RadGraph's.")
        if "severity" in self.terms and "severity" not in absent:
            said.append(caveat(self.reader.model("severity").table))
        if isinstance(self.tokenization, R2Gen):
            rows = {"mimic_cxr": "MIMIC-CXR", "iu_xray": "IU X-Ray"}[self.tokenization.dataset]
            said.append(
                f"Words are {self.settings.tokenization}: comparable with {rows} rows only."
            )
        said += self.costs()
        words = None
        if all(len(texts) == 1 for texts in pairs.references):  # of several the best is not known
            own = [text for texts in pairs.references for text in texts]
            words = text_scores(own, pairs.references, tokenization=self.tokenization, meteor=False)
        more: dict[str, Any] = {"absent": absent, "notes": said, "words": words}
        card = cards.scorecard(pairs, truth, readings, self.settings, **more)
        return card, readings

    def _reading(
        self,
        reports: Sequence[str],
        references: Sequence[Sequence[str]] | None,
        absent: dict[str, str],
    ) -> cards.SystemReading:
        labels = self.reader.labeller.label(reports)
        if references is None:
            return cards.SystemReading(labels)
        texts, owner = _flat(references)
        if not any(map(has_boxes, texts)):
            absent |= {name: NO_BOXES for name in GROUNDING if name in self.terms}
        scores = {}
        terms = [term for term in self.terms if term not in absent]
        for name, values in self.reader.measure(terms, [reports[i] for i in owner], texts):
            if isinstance(values, UserError):
                absent[name] = str(values)
                continue
            best = np.full(len(reports), -np.inf)
            np.maximum.at(best, owner, values)
            # of an estimate of errors the reference with the fewest counts
            scores[name] = best if METRICS[name].higher is not False else -best
        reasons = self._reasons(reports, texts, owner) if "severity" in scores else ()
        words = text_scores(reports, references, tokenization=self.tokenization, meteor=self.meteor)
        absent |= words.missing
        return cards.SystemReading(labels, scores, words, reasons)

    def _reasons(
        self, reports: Sequence[str], texts: Sequence[str], owner: np.ndarray
    ) -> list[Mapping[str, Any]]:
        """What severity's value of each report was made of, against its best reference."""
        reader: Severity = self.reader.model("severity")
        best: dict[int, SeverityJudgement] = {}
        judged = reader.judge([reports[i] for i in owner], texts)
        for i, one in zip(owner.tolist(), judged, strict=True):
            if i not in best or one.score > best[i].score:
                best[i] = one
        return [best[i].explain(reader.table) for i in range(len(reports))]


def _without(reading: cards.SystemReading, absent: Mapping[str, str]) -> cards.SystemReading:
    scores = {name: column for name, column in reading.scores.items() if name not in absent}
    text = reading.text
    if text is not None:
        parts = tuple(part for part in text.parts if part.key not in absent)
        text = dataclasses.replace(text, parts=parts)
    return dataclasses.replace(reading, scores=scores, text=text)


def _flat(references: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """All references in a row, and the study of each, int64."""
    owner = np.repeat(np.arange(len(references)), [len(texts) for texts in references])
    return [text for texts in references for text in texts], owner
