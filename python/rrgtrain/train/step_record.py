"""Write the records of RL steps, one file a step; collect moments for the report.

`steps/000012.json.gz` of a run holds the prompts' ids, every member with ids, text and edit, the
rewards by term and what the terms noted, the objective (advantages, token weights, mask, group
weights, preference, likelihood), and what the algorithm remembered before it made them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from rrgclinical.common.files import atomic_write
from rrgpolicy.model.codec import ReportCodec
from rrgreport.samples import EditSample, WeightSample, weighed_pieces
from rrgtrain.algorithms import Member
from rrgtrain.algorithms.group import members
from rrgtrain.schema import LogSettings
from rrgtrain.train.batch import Batch

TENSORS = ("advantages", "weight", "mask", "group_weight", "likelihood")


@dataclass(frozen=True)
class StepRecord:
    """One step before its update.

    `progress` is the share of the steps that were done, `state` what the algorithm remembered
    before it made the objective of the batch.
    """

    step: int
    progress: float
    batch: Batch
    state: Mapping[str, Any]
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
            atomic_write(self.folder / f"{record.step:06d}.json.gz", packed(recorded(record)))
        if self.inner is not None:
            self.inner(record)

    def state_dict(self) -> dict[str, Any]:
        """That of `inner`: the files are their own state."""
        return {} if self.inner is None else self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.inner is not None:
            self.inner.load_state_dict(state)


def recorded(record: StepRecord) -> dict[str, Any]:
    """The step as values that JSON holds; fp32 numbers come back with the same bits."""
    batch, objective = record.batch, record.batch.objective
    preference = objective.preference
    return {
        "step": record.step,
        "progress": record.progress,
        "state": dict(record.state),
        "groups": [
            {
                "index": group.index,
                "study": group.study.id,
                "prompt": group.prompt.input_ids.tolist(),
                "members": [record_of(m) for m in group.members],
            }
            for group in batch.groups
        ],
        "rewards": {name: value.tolist() for name, value in batch.scores.items()},
        "notes": {name: list(notes) for name, notes in batch.notes.items()},
        **{name: numbers(getattr(objective, name)) for name in TENSORS},
        "preference": None
        if preference is None
        else {
            **{name: numbers(t) for name, t in preference.pairs._asdict().items()},
            "tau": preference.tau,
            "length_normalized": preference.length_normalized,
        },
    }


def record_of(member: Member) -> dict[str, Any]:
    """Make the part of a record that holds a member."""
    return {
        "ids": member.ids.tolist(),
        "text": member.text,
        "origin": member.origin,
        "finished": member.finished,
        "parent": member.parent,
        "edit": [list(step) for step in member.steps],
        "competes": member.scored,
        "corrected": member.corrected,
        "sampler_logps": numbers(member.sampler_logps),
    }


def numbers(values: Tensor | None) -> list[Any] | None:
    """A tensor as plain numbers; of fp32 the shortest that round to the same bits."""
    if values is None:
        return None
    flat = values.detach().flatten().cpu()
    if flat.dtype == torch.float32:
        return [float(str(v)) for v in flat.numpy()]
    return flat.double().tolist() if flat.is_floating_point() else flat.tolist()


def packed(record: Mapping[str, Any]) -> bytes:
    """The bytes of a record's file; the same record gives the same bytes."""
    return gzip.compress(json.dumps(record, ensure_ascii=False).encode(), mtime=0)


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
        """All that is kept."""
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
