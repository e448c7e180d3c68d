"""Moments of reinforcement learning that are kept to be read: edits, and weighed reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rrgreport.samples import EditSample, WeightSample, weighed_pieces
from rrgtrain.algorithms.group import members
from rrgtrain.train.step_record import StepRecord

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
        if late and (found := heaviest(record)) is not None:
            if len(self.kept_weights) == self.weighed:
                del self.kept_weights[1]  # the first stays, to compare with
            self.kept_weights.append(found)

    def samples(self) -> list[EditSample | WeightSample]:
        """All that is kept."""
        return [*self.kept_edits, *self.kept_weights]

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "kept": [asdict(sample) for sample in self.kept_edits],
            "weights": [asdict(sample) for sample in self.kept_weights],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
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
        seen = {rule for sample in self.kept_edits for rule, _, _ in sample.steps}
        late = not self.kept_edits or step > (self.kept_edits[-1].step or 0) + APART
        return late or any(rule not in seen for rule, _, _ in steps)


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
