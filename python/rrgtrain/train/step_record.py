"""Writes the records of RL steps, one file a step.

`steps/000012.json.gz` of a run holds the prompts' ids, every member with ids, text and edit, the
rewards by term and what the terms noted, the objective (advantages, token weights, mask, group
weights, preference, likelihood), and what the algorithm remembered before it made them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from rrgclinical.common.files import atomic_write
from rrgpolicy.model.codec import ReportCodec
from rrgreport.run_files import RECORD_FORMAT
from rrgtrain.algorithms import Member
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
        """Puts back what `state_dict` gave."""
        if self.inner is not None:
            self.inner.load_state_dict(state)


def recorded(record: StepRecord) -> dict[str, Any]:
    """The step as values that JSON holds; fp32 numbers come back with the same bits."""
    batch, objective = record.batch, record.batch.objective
    preference = objective.preference
    return {
        "format": RECORD_FORMAT,
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
