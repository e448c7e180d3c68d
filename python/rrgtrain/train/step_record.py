"""Write the records of RL steps, one file a step; collect moments for the report.

`steps/000012.json.gz` of a run holds every report of the step with its study and edit, its rewards
by term, what the terms noted, and its advantage.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rrgclinical.common.files import atomic_write
from rrgpolicy.model.codec import ReportCodec
from rrgreport.samples import EditSample, WeightSample, weighed_pieces
from rrgtrain.algorithms.group import group_offsets, members
from rrgtrain.schema import LogSettings
from rrgtrain.train.batch import Batch


@dataclass(frozen=True)
class StepRecord:
    """One step before its update."""

    step: int
    batch: Batch
    codec: ReportCodec


class Recorder(Protocol):
    """Sees every batch before its update, and goes on where it stood after a resume."""

    def __call__(self, record: StepRecord) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class StepRecords:
    """Writes the steps that `log` keeps to `folder`, then tells `inner`.

    A step that is taken again after a resume replaces its file.
    """

    def __init__(self, folder: Path, log: LogSettings, inner: Recorder | None = None) -> None:
        self.folder, self.log, self.inner = folder, log, inner

    def __call__(self, record: StepRecord) -> None:
        if self.log.keeps(record.step):
            self.folder.mkdir(exist_ok=True)
            text = json.dumps(recorded(record.batch), ensure_ascii=False)
            # the same record gives the same bytes
            packed = gzip.compress(text.encode(), mtime=0)
            atomic_write(self.folder / f"{record.step:06d}.json.gz", packed)
        if self.inner is not None:
            self.inner(record)

    def state_dict(self) -> dict[str, Any]:
        """That of `inner`: the files are their own state."""
        return {} if self.inner is None else self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.inner is not None:
            self.inner.load_state_dict(state)


def recorded(batch: Batch) -> list[dict[str, Any]]:
    """Describe each member in the order of the batch, as values that JSON holds.

    `advantage` is the mean over its tokens; rewards and notes are of members that are scored;
    `parent` is the place of the report that an edit was made from.
    """
    rows, reports = iter(range(int(batch.scored.sum()))), []
    begins = group_offsets(batch.groups).tolist()
    flat = [(g, b, m) for g, b in zip(batch.groups, begins, strict=False) for m in g.members]
    parts = batch.advantages.split([len(member.ids) for _, _, member in flat])
    for (group, begin, member), advantages in zip(flat, parts, strict=True):
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
        reports.append(report)
    return reports


APART = 10
"""Steps between two moments of the same kind, unless the second shows something new."""


@dataclass
class SampleCollector:
    """Collect edits and weighed reports of a run for its report.

    Of edits the first of each rule, then some from along the run; of weighed reports the first and
    the latest ones, each the heaviest of its batch.
    """

    edits: int = 12
    weighed: int = 4
    kept_edits: list[EditSample] = field(default_factory=list)
    kept_weights: list[WeightSample] = field(default_factory=list)

    def __call__(self, record: StepRecord) -> None:
        self._look_for_edits(record)
        late = not self.kept_weights or record.step >= self.kept_weights[-1].step + APART
        if late and (weighed := heaviest(record)) is not None:
            if len(self.kept_weights) == self.weighed:
                del self.kept_weights[1]  # the first stays, to compare with
            self.kept_weights.append(weighed)

    def samples(self) -> list[EditSample | WeightSample]:
        return [*self.kept_edits, *self.kept_weights]

    def state_dict(self) -> dict[str, Any]:
        return {
            "kept": [asdict(sample) for sample in self.kept_edits],
            "weights": [asdict(sample) for sample in self.kept_weights],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept_edits = [EditSample(**sample) for sample in state["kept"]]
        self.kept_weights = [WeightSample(**sample) for sample in state["weights"]]

    def _look_for_edits(self, record: StepRecord) -> None:
        groups, rewards, begin = record.batch.groups, record.batch.rewards, 0
        flat = members(groups)
        for group in groups:
            for k, member in enumerate(group.members):
                if member.parent is None or not group.members[member.parent].scored:
                    continue
                if self._wanted(member.steps, record.step):
                    parent = begin + member.parent
                    self.kept_edits.append(
                        EditSample(
                            group.study.id,
                            flat[parent].text,
                            member.text,
                            member.steps,
                            group.study.report or "",
                            float(rewards[parent]),
                            float(rewards[begin + k]),
                            step=record.step,
                        )
                    )
            begin += len(group.members)

    def _wanted(self, steps: tuple[tuple[str, str, str], ...], step: int) -> bool:
        if len(self.kept_edits) >= self.edits or not steps:
            return False
        rules = {rule for sample in self.kept_edits for rule, _, _ in sample.steps}
        late = not self.kept_edits or step > (self.kept_edits[-1].step or 0) + APART
        return late or any(rule not in rules for rule, _, _ in steps)


def heaviest(record: StepRecord) -> WeightSample | None:
    """The sampled report with the heaviest token; None where no token weighs more than another."""
    batch, flat = record.batch, members(record.batch.groups)
    if batch.objective.weight is None:
        return None
    lengths = [len(m.ids) for m in flat]
    weights = batch.objective.weight.split(lengths)
    studies = [group.study for group in batch.groups for _ in group.members]
    able = [
        s
        for s, (weight, member) in enumerate(zip(weights, flat, strict=True))
        if member.origin == "sampled" and len(weight) and bool((weight != weight[0]).any())
    ]
    if not able:
        return None
    best = max(able, key=lambda s: float(weights[s].max()))
    member, advantage = flat[best], float(batch.advantages.split(lengths)[best].mean())
    spans = record.codec.char_spans(member.ids)
    return WeightSample(
        studies[best].id,
        weighed_pieces(member.text, spans, weights[best].tolist()),
        studies[best].report or "",
        record.step,
        float(batch.rewards[best]),
        advantage,
    )
