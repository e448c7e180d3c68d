"""Make a recorded step of a run again, and say of each field whether it comes out the same.

Each stage is given what the record holds of the stages before it, so that a difference is named
where it arises: the prompts of the studies, the texts of the sampled ids, the members that the
algorithm adds (edits, oracle), the rewards by term, the objective.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rrgtrain.algorithms import Algorithm, Group, Member
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import members
from rrgtrain.run.session import Session
from rrgtrain.train import Batch
from rrgtrain.train.step_record import StepRecord, record_of, recorded

# What another machine, or a batch of another size, may change in the last digits of fp32.
RELATIVE, ABSOLUTE = 1e-5, 1e-6

OBJECTIVE = ("advantages", "weight", "mask", "group_weight", "likelihood", "preference")


@dataclass(frozen=True)
class Finding:
    """One field of a record; `difference` says where it first differs, "" where it does not."""

    field: str
    difference: str = ""


def made_again(
    record: Mapping[str, Any], session: Session, algorithm: Algorithm
) -> Iterator[Finding]:
    """Every field of a record that needs no weights, made again from the fields before it."""
    codec = session.policy.codec
    recorded_groups = groups_of(record, session)
    prompts = [g.prompt.input_ids.tolist() for g in recorded_groups]
    yield compared("prompts", [g["prompt"] for g in record["groups"]], prompts)
    flat = members(recorded_groups)
    drawn = [m for m in flat if m.origin == "sampled"]
    texts = [codec.decode(m.ids) for m in drawn]
    yield compared("texts", [m.text for m in drawn], texts)

    read = iter(texts)
    sampled = []
    for g in recorded_groups:
        own = [m for m in g.members if m.origin == "sampled"]
        again = tuple(dataclasses.replace(m, text=next(read)) for m in own)
        sampled.append(dataclasses.replace(g, members=again))
    completed, _ = algorithm.complete(sampled, record["step"], codec.reencode_from)
    whole = [[record_of(m) for m in g.members] for g in completed]
    yield compared("members", [g["members"] for g in record["groups"]], whole)

    able = [(g.study, m) for g in recorded_groups for m in g.members if m.scored]
    scores = session.rewards(
        [m.text for _, m in able], [study for study, _ in able], record["progress"]
    )
    values = {name: value.tolist() for name, value in scores.items()}
    for name in dict.fromkeys([*record["rewards"], *values]):
        yield compared(f"reward {name}", record["rewards"].get(name), values.get(name))
    for name in dict.fromkeys([*record["notes"], *scores.notes]):
        yield compared(f"notes {name}", record["notes"].get(name), scores.notes.get(name))

    told = len(record["rewards"]["total"])
    if told != len(able):
        yield Finding("advantages", f"{told} rewards are recorded, but {len(able)} members compete")
        return
    algorithm.load_state_dict(record["state"])
    totals = {"total": torch.tensor(record["rewards"]["total"]).double().numpy()}
    total = Batch(recorded_groups, scores=totals).rewards
    objective = as_objective(algorithm.advantages(recorded_groups, total))
    batch = Batch([], objective=objective)
    made = recorded(StepRecord(record["step"], 0.0, batch, record["state"], codec))
    for name in OBJECTIVE:
        yield compared(name.replace("_", " "), record[name], made[name])


def groups_of(record: Mapping[str, Any], session: Session) -> list[Group]:
    """The groups of a record with all their members."""
    studies = {s.id: s for split in session.studies.values() for s in split}
    groups = []
    for found in record["groups"]:
        study = studies[found["study"]]
        own = tuple(member_of(m) for m in found["members"])
        groups.append(Group(found["index"], study, session.prompts(study), own))
    return groups


def member_of(found: Mapping[str, Any]) -> Member:
    """Read a member from its record."""
    logps = found["sampler_logps"]
    return Member(
        ids=torch.tensor(found["ids"], dtype=torch.int64),
        text=found["text"],
        origin=found["origin"],
        finished=found["finished"],
        sampler_logps=None if logps is None else torch.tensor(logps, dtype=torch.float32),
        parent=found["parent"],
        steps=tuple((rule, removed, added) for rule, removed, added in found["edit"]),
        scored=found["competes"],
        corrected=found["corrected"],
    )


def compared(field: str, recorded: Any, made: Any) -> Finding:
    """Find where two values of JSON first differ, numbers beyond rounding."""
    return Finding(field, _difference(recorded, made, ""))


def _difference(a: Any, b: Any, place: str) -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            if key not in a or key not in b:
                side = "only when made again" if key in b else "only in the record"
                return f"{_at(place)}{key} is there {side}"
            if found := _difference(a[key], b[key], f"{place}.{key}".lstrip(".")):
                return found
        return ""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"{_at(place)}{len(a)} recorded, {len(b)} made again"
        pairs = enumerate(zip(a, b, strict=True))
        return next(filter(None, (_difference(x, y, f"{place}[{i}]") for i, (x, y) in pairs)), "")
    if isinstance(a, float) and isinstance(b, float | int) and not isinstance(b, bool):
        close = math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        same = close or (math.isnan(a) and math.isnan(b))
    else:
        same = type(a) is type(b) and a == b
    return "" if same else f"{_at(place)}recorded {_short(a)}, made again {_short(b)}"


def _at(place: str) -> str:
    return f"at {place}: " if place else ""


def _short(value: Any, longest: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}..."
