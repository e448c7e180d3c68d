"""Time the phases of a step and write its row."""

from __future__ import annotations

from collections.abc import Mapping

from rrgclinical.common.stopwatch import Stopwatch
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms.group import members
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService
from rrgtrain.train.batch import Batch
from rrgtrain.train.batch_metrics import batch_row
from rrgtrain.train.speed import Speed

PHASES = ("rollout", "edit", "reward", "update", "validate")


class StepLog:
    """Watch the steps of a training, one after another.

    `clock` sums the seconds of each phase over resumes; `shown` is what a bar says of the step
    whose row was written last.
    """

    def __init__(self, name: str, log: RunLog, policy: Policy, rewards: RewardService) -> None:
        self._name, self._log, self._rewards = name, log, rewards
        self._speed = Speed(policy)
        self.clock = Stopwatch(PHASES)
        self.shown: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._before = rewards.statistics()

    def begin(self) -> None:
        """Begin a step: its seconds, costs and peak of memory count from here."""
        self._speed.begin()
        self._seconds, self._before = {}, self._rewards.statistics()

    def lap(self, phase: str) -> None:
        """Count the time since the last lap to a phase of this step."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + self.clock.lap(phase)

    def write(
        self, step: int, batch: Batch, update: Mapping[str, float], tokens: int, *, reference: bool
    ) -> None:
        """Write the row of a step; `tokens` went through the update's forward.

        reference: they went through that of a reference too.
        """
        total = batch.scores["total"]
        self.shown = {"reward": float(total.mean())} if len(total) else {}
        speed = self._speed.row(
            self._seconds,
            generated=sum(len(m.ids) for m in members(batch.sampled)),
            trained=tokens,
            scored=int(update["scored_tokens"]),
            reference=reference,
        )
        rewards = self._rewards.since(self._before)
        if cost := rewards.get("endpoint/total_cost"):
            self.shown["cost"] = cost
        self._log.write(
            self._name, step, {**batch_row(batch), **batch.counts, **update, **speed, **rewards}
        )
