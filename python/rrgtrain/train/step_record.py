"""Write records of RL steps, one file a step; choose samples for the report.

`steps/000012.json.gz` of a run holds every report of the step with its study and edit, its rewards
by term, what the terms noted and its advantage; and the pieces of one, the heaviest, with weights.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_write
from rrgpolicy.model.codec import ReportCodec
from rrgreport.samples import EditSample, WeightSample, weighed_pieces
from rrgtrain.algorithms.group import group_offsets
from rrgtrain.schema import LogSettings
from rrgtrain.train.batch import Batch


@dataclass(frozen=True)
class StepRecord:
    """One step before its update."""

    step: int
    batch: Batch
    codec: ReportCodec


class StepRecords:
    """Writes the steps that `log` keeps to `folder`.

    A step that is taken again after a resume replaces its file.
    """

    def __init__(self, folder: Path, log: LogSettings) -> None:
        self.folder, self.log = folder, log

    def __call__(self, record: StepRecord) -> None:
        if self.log.keeps(record.step):
            self.folder.mkdir(exist_ok=True)
            text = json.dumps(recorded(record), ensure_ascii=False)
            # the same record gives the same bytes
            packed = gzip.compress(text.encode(), mtime=0)
            atomic_write(self.folder / f"{record.step:06d}.json.gz", packed)


def recorded(record: StepRecord) -> list[dict[str, Any]]:
    """Describe each member in the order of the batch, as values that JSON holds.

    `advantage` is the mean over its tokens; rewards and notes are of members that are scored;
    `parent` is the place of the report that an edit was made from; `weights` pairs pieces with
    their weights, of the sampled, scored report with the heaviest token alone.
    """
    batch = record.batch
    rows, reports = iter(range(int(batch.scored.sum()))), []
    begins = group_offsets(batch.groups).tolist()
    flat = [(g, b, m) for g, b in zip(batch.groups, begins, strict=False) for m in g.members]
    lengths, weight = [len(member.ids) for _, _, member in flat], batch.objective.weight
    parts = batch.advantages.split(lengths)
    pairs = enumerate([] if weight is None else weight.split(lengths))
    own = {k: w.tolist() for k, w in pairs if flat[k][2].origin == "sampled" and flat[k][2].scored}
    differ = {k: weights for k, weights in own.items() if len({*weights}) > 1}
    heaviest = max(differ, key=lambda k: max(differ[k]), default=None)
    for k, ((group, begin, member), advantages) in enumerate(zip(flat, parts, strict=True)):
        report: dict[str, Any] = {
            "study": group.study.id,
            "origin": member.origin,
            "text": member.text,
            "finished": member.finished,
            "edit": member.steps,
            "parent": None if member.parent is None else begin + member.parent,
            "advantage": float(advantages.double().mean()) if len(advantages) else 0.0,
        }
        if member.scored:
            row = next(rows)
            report["rewards"] = {name: float(value[row]) for name, value in batch.scores.items()}
            report["notes"] = {name: notes[row] for name, notes in batch.notes.items()}
        if k == heaviest:
            spans = record.codec.char_spans(member.ids)
            report["weights"] = weighed_pieces(member.text, spans, differ[k])
        reports.append(report)
    return reports


APART = 10
"""Steps between two samples of the same kind, unless the second shows something new."""
EDITS, WEIGHED = 12, 4
"""Edits and weighed reports of a run that its page shows."""


def samples_of(folder: Path, references: Mapping[str, str]) -> list[EditSample | WeightSample]:
    """Choose edits and weighed reports among the records in a folder.

    Of edits the first of each rule, then some from along the run; of weighed reports the first and
    the latest ones, each the heaviest of its step. references: reports by study.
    """
    edits, weighed = list[EditSample](), list[WeightSample]()
    for path in sorted(folder.glob("*.json.gz")):
        step = int(path.name[:6])
        reports = json_reader.parse(gzip.decompress(path.read_bytes()), list)
        for after in reports:
            before = {} if after["parent"] is None else reports[after["parent"]]
            if "rewards" in before and _is_of_interest(edits, after["edit"], step):
                texts = (before["text"], after["text"], after["edit"])
                reference = references.get(after["study"], "")
                totals = [of.get("rewards", {}).get("total") for of in (before, after)]
                edits.append(EditSample(after["study"], *texts, reference, *totals, step=step))
        top = next((report for report in reports if "weights" in report), None)
        if top and (not weighed or step >= weighed[-1].step + APART):
            reference, total = references.get(top["study"], ""), top["rewards"]["total"]
            weighed[1:] = weighed[2:] if len(weighed) == WEIGHED else weighed[1:]  # the first stays
            pieces = [(text, weight) for text, weight in top["weights"]]
            more = (step, total, top["advantage"])
            weighed.append(WeightSample(top["study"], pieces, reference, *more))
    return [*edits, *weighed]


def _is_of_interest(edits: list[EditSample], rules: list[list[str]], step: int) -> bool:
    shown = {rule for sample in edits for rule, _, _ in sample.steps}
    late = not edits or step > (edits[-1].step or 0) + APART
    new = any(rule not in shown for rule, _, _ in rules)
    return bool(rules) and len(edits) < EDITS and (late or new)
