"""Prepare studies to be read on a page: marked reports, label errors, order and filter."""

from __future__ import annotations

import base64
import os.path
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rrgclinical import build_extractor, build_labeller
from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole
from rrgclinical.common.shown import hidden
from rrgclinical.grounding import Box, parse_boxes
from rrgclinical.labels import OBSERVATIONS, ClassId, to_binary
from rrgclinical.severity import in_words
from rrgreport.marks import Marked, mark_reports
from rrgreport.page import rendered, write_out
from rrgreport.run_files import RunFiles
from rrgreport.samples import Sample, class_ids, png

SHOWN = 200
"""Cases of a page: about two megabytes of text."""
FINDINGS = tuple(name for name in OBSERVATIONS if name != "No Finding")
"""The findings an error is counted in: No Finding only says that there is none of them."""


@dataclass(frozen=True)
class Errors:
    """Findings of the truth that a report misses, and those that it has beyond them."""

    missed: list[str]
    false: list[str]

    @property
    def count(self) -> int:
        return len(self.missed) + len(self.false)


@dataclass(frozen=True)
class Case:
    """A study with the reports of the systems.

    `predicted` holds the class ids read in them, [14] a system; `truths` the true ones by which a
    system is judged, where runs have their own, else they are the sample's.
    """

    sample: Sample
    predicted: Mapping[str, Sequence[int]] = field(default_factory=dict)
    truths: Mapping[str, Sequence[int] | None] = field(default_factory=dict)

    def truth(self, system: str) -> Sequence[int] | None:
        """Give the class ids [14] by which a system's report is judged."""
        return self.truths.get(system, self.sample.labels)

    def every_truth(self) -> list[Sequence[int]]:
        every = [self.sample.labels, *self.truths.values()]
        return list({tuple(truth): truth for truth in every if truth is not None}.values())

    @property
    def disputed(self) -> bool:
        return len(self.every_truth()) > 1

    def errors(self, system: str) -> Errors | None:
        """Label errors of a system's report; None where truth or labels are not known."""
        truth, read = self.truth(system), self.predicted.get(system)
        if truth is None or read is None:
            return None
        should, have = (dict(zip(OBSERVATIONS, _present(x), strict=True)) for x in (truth, read))
        return Errors(
            [name for name in FINDINGS if should[name] and not have[name]],
            [name for name in FINDINGS if have[name] and not should[name]],
        )

    def present(self) -> list[str]:
        """Findings of the truth, or of any report."""
        every = [*self.every_truth(), *self.predicted.values()]
        named = {
            n for x in every for n, flag in zip(OBSERVATIONS, _present(x), strict=True) if flag
        }
        return [name for name in FINDINGS if name in named]


@dataclass(frozen=True)
class CaseList:
    """Cases as the page's template takes them, and `notes` that say how they came about.

    `findings` holds each finding that occurs, with its number of cases.
    """

    shown: list[dict[str, Any]]
    findings: list[tuple[str, int]]
    notes: list[str]


def _present(labels: Sequence[int]) -> list[bool]:
    return to_binary(np.asarray([labels], dtype=np.int8))[0].astype(bool).tolist()


def read_by_rules(samples: Sequence[Sample]) -> list[Case]:
    """Make cases of samples, which hold no labels of the reports: the rules read them."""
    texts = [text for s in samples for text in s.outputs.values()]
    labels = iter(build_labeller("rules").label(texts) if texts else [])
    return [Case(s, {name: next(labels).tolist() for name in s.outputs}) for s in samples]


def kept_cases(
    run: RunFiles, samples: Sequence[Sample], systems: Collection[str]
) -> tuple[list[Case], str]:
    """Read the cases of a run: all its studies from predictions.jsonl, else its samples.

    Images and what FactS read are the samples'. The words say who read the labels of the reports.
    Raises UserError, naming the line, for a file that is no predictions.
    """
    path = run.predictions
    if not os.path.lexists(path):
        return read_by_rules(samples), "the rules labeller"
    pictured = {sample.id: sample for sample in samples}
    cases: dict[str, Case] = {}
    for number, line in enumerate(read_whole(path).split(b"\n"), start=1):
        if not line:
            continue
        try:
            row = json_reader.parse(line, dict)
            if row["system"] not in systems:
                continue
            case = cases.get(row["id"]) or _case(row, pictured.get(row["id"]))
            predicted = {**case.predicted, row["system"]: class_ids(row["labels_predicted"])}
            outputs = {**case.sample.outputs, row["system"]: str(row["report"])}
            severity = dict(case.sample.severity or {})
            if row.get("severity") and in_words(row["severity"]):
                severity[row["system"]] = row["severity"]
            sample = replace(case.sample, outputs=outputs, severity=severity)
            cases[row["id"]] = Case(sample, predicted)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}:{number}: no report of a study ({error}); delete that line"
            ) from error
    # those with a picture first: half of them got better, half got worse
    ordered = sorted(cases.values(), key=lambda case: case.sample.id not in pictured)
    return ordered, "the run's labeller"


def _case(row: Mapping[str, Any], sample: Sample | None) -> Case:
    texts = row["reference"]
    reference = "\n\n".join(texts) if isinstance(texts, list) else texts or ""
    start = sample or Sample(str(row["id"]), [], "", {})
    labels = class_ids(row["labels_true"])
    return Case(replace(start, reference=reference, outputs={}, labels=labels))


def case_list(cases: Sequence[Case], systems: Sequence[str], *, labeller: str) -> CaseList:
    """Prepare at most SHOWN cases; `labeller` names who read the labels.

    Sentences are marked by the entities that the rules find.
    """
    notes = []
    if len(cases) > SHOWN:
        notes.append(
            f"{SHOWN} of {len(cases)} studies: those with images, then from the most to the fewest "
            f"label errors of {systems[-1]} in equal steps."
        )
        cases = _spread(cases, systems[-1])
    if any(case.errors(name) for case in cases for name in systems):
        notes.append(
            f"Label errors: those of the {len(FINDINGS)} findings that {labeller} reads otherwise "
            "in a report than the truth says; uncertain counts as present."
        )
    pairs = [(case.sample, name) for case in cases for name in case.sample.outputs]
    texts, references = [s.outputs[n] for s, n in pairs], [s.reference for s, _ in pairs]
    marked = iter(mark_reports(texts, references, build_extractor("rules")) if pairs else [])
    shown = [
        _shown(case, systems, {n: next(marked) for n in case.sample.outputs}) for case in cases
    ]
    counts = {name: sum(name in case["tags"] for case in shown) for name in FINDINGS}
    return CaseList(shown, [(name, count) for name, count in counts.items() if count], notes)


def _spread(cases: Sequence[Case], system: str) -> list[Case]:
    pictured = [case for case in cases if case.sample.images][:SHOWN]
    held = {id(case) for case in pictured}
    rest = [case for case in cases if id(case) not in held]
    rest.sort(key=lambda case: -(e.count if (e := case.errors(system)) else 0))
    room = SHOWN - len(pictured)
    places = np.linspace(0, len(rest) - 1, room).round().astype(int).tolist()
    return [*pictured, *(rest[i] for i in places)]


def _shown(case: Case, systems: Sequence[str], marked: Mapping[str, Marked]) -> dict[str, Any]:
    sample = case.sample
    order = [n for n in systems if n in marked] + [n for n in marked if n not in systems]
    errors = {name: case.errors(name) for name in order}
    texts = [(name, sample.outputs[name]) for name in order]
    return {
        "id": sample.id,
        "indication": sample.indication,
        "reference": sample.reference,
        "images": _images(sample),
        "boxes": _boxes([("Reference", sample.reference), *texts]),
        "texts": texts,
        "findings": _labels(case),
        "tags": case.present(),
        "errors": [e.count if (e := errors.get(name)) else None for name in systems],
        "outputs": [
            {
                "system": name,
                "marked": marked[name],
                "facts": read_facts(note) if (note := (sample.facts or {}).get(name)) else None,
                "errors": errors[name],
                "severity": _severity(note) if (note := (sample.severity or {}).get(name)) else (),
                "repeated": _repeated(marked[name]),
            }
            for name in order
        ],
    }


def write_study(out: Path, sample: Sample, notes: Sequence[str]) -> None:
    """Write a page of one study without a reference: its images, its reports, and `notes`."""
    shown = {"outputs": sample.outputs, "images": _images(sample), "notes": notes}
    title = {"title": f"Report of {sample.id}"}
    page = rendered("study.html.j2", summary=title, headline="", **shown)
    write_out(out, hidden(page))


def _severity(note: Mapping[str, Any]) -> tuple[str, str]:
    """Say what was missed and invented, at which cost, and the whole of a judgement."""
    parts = [f"Severity score {note['score']:.2f}, 1 is best"]
    for key in ("missed", "invented"):
        listed = [f"{one['finding']} (\N{MINUS SIGN}{one['cost']:g})" for one in note[key]]
        parts += [f"{key}: {', '.join(listed)}"] if listed else []
    return "; ".join(parts), in_words(note)


def _repeated(marked: Marked) -> list[tuple[str, int]]:
    said = Counter(text.strip() for text, _ in marked.pieces if text.strip())
    return [(text, times) for text, times in said.items() if times > 1]


def _images(sample: Sample) -> list[tuple[str, str, str]]:
    """(data URI, alternative text, caption) of each image."""
    shown = []
    views = [*sample.views, *[""] * len(sample.images)]
    for i, (image, view) in enumerate(zip(sample.images, views, strict=False), start=1):
        uri = "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")
        alt = f"Radiograph {i} of {len(sample.images)} of study {sample.id}"
        shown.append((uri, f"{alt}, {view}" if view else alt, view))
    return shown


def _boxes(texts: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, Box]]]]:
    """(Whose, the boxes with their sentences) of each text; empty where none has a box."""
    drawn = []
    for whose, report in texts:
        text, boxes = parse_boxes(report)
        drawn.append((whose, [(text[:at].rpartition(". ")[2], box) for at, box in boxes]))
    return drawn if any(boxes for _, boxes in drawn) else []


def _labels(case: Case) -> list[str]:
    """Name the findings of the truth; those of one run's alone are marked."""
    words = {ClassId.POSITIVE: "", ClassId.UNCERTAIN: " (uncertain)"}
    truths = [
        [n + words[c] for n, x in zip(OBSERVATIONS, t, strict=True) if (c := ClassId(x)) in words]
        for t in case.every_truth()
    ]
    return [
        name if all(name in truth for truth in truths) else f"{name} (not in every run)"
        for name in dict.fromkeys(name for truth in truths for name in truth)
    ]


TRUTH = {
    ClassId.BLANK: "not mentioned",
    ClassId.POSITIVE: "positive",
    ClassId.NEGATIVE: "negative",
    ClassId.UNCERTAIN: "uncertain",
}
# (verdict of the facts, whether the reference is positive) -> (class of the cell, sign, words)
OUTCOMES = {
    ("entailed", True): ("right", "\N{CHECK MARK}", "found"),
    ("entailed", False): ("wrong", "\N{MULTIPLICATION X}", "false alarm"),
    ("denied", True): ("wrong", "\N{MULTIPLICATION X}", "contradicted, counts twice"),
    ("denied", False): ("free", "\N{EN DASH}", "costs nothing"),
    ("not mentioned", True): ("lost", "\N{WHITE CIRCLE}", "missed"),
}


@dataclass(frozen=True)
class Verdict:
    """One label by the facts, by the reference, and in the reward."""

    label: str
    verdict: str
    truth: str
    fact: str
    kind: str
    symbol: str
    outcome: str


@dataclass(frozen=True)
class FactsRead:
    """Facts of a report in order, and the labels mentioned there or in the reference."""

    statements: list[str]
    verdicts: list[Verdict]


def read_facts(note: Mapping[str, Any]) -> FactsRead:
    """Read FactS's note of a report, with the 14 class ids that judged it.

    Labels that the facts do not mention and the reference does not hold count for nothing and are
    left out.
    """
    verdicts = []
    for index, label in enumerate(OBSERVATIONS):
        judged, true_class = note["labels"].get(label, {}), ClassId(note["truth"][index])
        verdict, fact = judged.get("verdict", "not mentioned"), judged.get("fact") or ""
        positive = true_class in (ClassId.POSITIVE, ClassId.UNCERTAIN)
        if (verdict, positive) in OUTCOMES:
            kind, symbol, outcome = OUTCOMES[verdict, positive]
            said = TRUTH[true_class]
            verdicts.append(Verdict(label, verdict, said, fact, kind, symbol, outcome))
    return FactsRead(list(note["facts"]), verdicts)
