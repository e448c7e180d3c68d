"""Hold what reinforcement learning works with, where it stands, and what surrounds a step."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrgclinical.common.progress import Bar, progress
from rrgclinical.severity import alarm_lines
from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks, sharding
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgtrain.algorithms import Algorithm, Context, Group
from rrgtrain.algorithms.group import read_members, without
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService
from rrgtrain.schema import (
    EvalSettings,
    PolicySettings,
    RewardSettings,
    RlSettings,
    RolloutSettings,
    ScaleSettings,
)
from rrgtrain.state.identity import digest_of
from rrgtrain.state.null_checkpointer import NullCheckpointer, State
from rrgtrain.train.batch import Batch
from rrgtrain.train.best import Best, judged_settings
from rrgtrain.train.evaluate import AxesWatch, chosen_value
from rrgtrain.train.loader import PromptLoader, batch_indices, order_of
from rrgtrain.train.optim import optimizer_of
from rrgtrain.train.reference import Reference, named_reference
from rrgtrain.train.resample import differing
from rrgtrain.train.sampler_gap import SamplerWatch
from rrgtrain.train.step_log import StepLog, zero_variance
from rrgtrain.train.step_record import StepRecord


@dataclass(frozen=True)
class RlResult:
    """`best` is the checkpoint whose validation is best by `eval.best_by`, with `best_value`.

    `seconds` is the whole wall time and `phases` where it went; `edits` counts the edits by
    rule; `zero_variance` is the mean share of groups whose members all earned the same;
    `rollouts` is how many reports were sampled.
    """

    best: Path
    best_value: float
    best_step: int
    steps: int
    seconds: float
    phases: dict[str, float]
    zero_variance: float
    edits: dict[str, float]
    rollouts: int


@dataclass
class LoopState:
    """Hold the loop's position.

    Steps done, the step count last validated, the steps up to here without a group that differs,
    and what is counted."""

    step: int = 0
    validated: int = -1
    flat_row: int = 0
    rollouts: int = 0
    flat_groups: int = 0
    all_groups: int = 0
    edits: dict[str, float] = field(default_factory=dict)

    def count(self, batch: Batch) -> None:
        """Count the reports, groups and edits of a step."""
        self.rollouts += sum(len(group.members) for group in batch.sampled)
        self.flat_groups += zero_variance(batch)
        self.all_groups += len(batch.sampled)
        taught = batch.objective.preference or batch.objective.likelihood is not None
        self.flat_row = 0 if taught or differing(batch) else self.flat_row + 1
        for name, value in batch.counts.items():
            if not name.startswith("resample/"):
                self.edits[name] = self.edits.get(name, 0.0) + value


@dataclass
class Ahead:
    """Hold what `rl.ahead=1` has drawn: the batch that comes next, and the one under way.

    A checkpoint holds the first, whose weights are gone; what is under way when a run ends is drawn
    again, from the same weights and seeds. saved: the first, of a checkpoint, without its prompts.
    """

    batch: Batch | None = None
    under_way: Callable[[], Batch] | None = None
    saved: State | None = None

    def state_dict(self, request: str) -> State | None:
        """Keep the next batch as it was drawn, of all ranks, and its request."""
        if self.batch is None:
            return self.saved
        drawn = [
            [(m.ids, m.sampler_logps, m.finished) for m in group.members]
            for group in self.batch.groups
        ]
        return {"request": request, "drawn": drawn}


@dataclass
class RlRun:
    """Hold the parts and the position of a training by reinforcement learning.

    validate: metrics of the policy on held-out studies. out: directory of the best checkpoint.
    trained_as: see `to_remember`. start: the section by which the policy was opened.
    record: sees every batch before its update. checkpointer: makes the run resumable.
    sampler: draws the reports; transformers by default. That of the validations, so that a step's
    weights are gathered once. watch_axes: what `validate` adds axes with, whose past goes into
    checkpoints.
    """

    policy: Policy
    prompts: PromptLoader
    studies: Sequence[Study]
    settings: RlSettings
    algorithm: Algorithm
    rewards: RewardService
    validate: Callable[[], dict[str, float]]
    out: Path
    log: RunLog
    seed: int
    scale: ScaleSettings
    eval: EvalSettings
    reward: RewardSettings
    trained_as: Mapping[str, Any]
    start: PolicySettings
    rollout: RolloutSettings
    record: Callable[[StepRecord], None] | None = None
    checkpointer: NullCheckpointer = field(default_factory=NullCheckpointer)
    sampler: PolicySampler = field(default_factory=PolicySampler)
    watch_axes: AxesWatch | None = None
    reference: Reference | None = None
    state: LoopState = field(default_factory=LoopState)
    optimizer: torch.optim.Optimizer = field(init=False)
    watch: SamplerWatch = field(init=False)
    step_log: StepLog = field(init=False)
    ahead: Ahead = field(default_factory=Ahead)
    prompts_ahead: Generator[list[EncodedPrompt]] = field(init=False)
    """This rank's prompts of each step from the first that is run."""

    @contextmanager
    def started(self) -> Iterator[None]:
        """Lays the policy out, makes reference and optimiser, goes on where a checkpoint stands;
        shows the progress of the steps inside."""
        settings, scale = self.settings, self.scale
        require_reports(self.algorithm, self.studies)
        self.algorithm.prepare(Context(self.policy.codec, self.studies))
        if settings.beta > 0 or self.algorithm.needs_reference:
            # `out` lies among the checkpoints of the run
            work, shares = self.out.parent.parent, scale.mode != "fsdp2"
            self.reference = named_reference(
                self.policy, settings.reference, self.start, work, shares=shares
            )
        sharding.setup(scale.mode, self.policy, self.reference, shard=scale.shard)
        self.optimizer = optimizer_of(self.policy.model, settings)
        at_start = self.reference if settings.reference == "start" else None
        self.watch = SamplerWatch(
            self.policy, self.algorithm, settings, self.rollout.max_gap, at_start
        )
        judged = judged_settings(self.eval, self.reward)
        self._best = Best(self.policy, judged, self.checkpointer)
        self.step_log = StepLog(self.algorithm.name, self.log, self.policy, self.rewards)
        saved = self.checkpointer.begin(self.algorithm.name, self.state_dict)
        if saved is not None:
            self.load_state_dict(saved)
        saved = None  # as large as weights and optimiser together
        self._bar: Bar[int] = progress(settings.steps, self.algorithm.name, done=self.state.step)
        steps = range(self.state.step, settings.steps)
        own = ([self.studies[i] for i in ranks.shard(self.indices(step))] for step in steps)
        with self._bar, closing(self.prompts.ahead(own)) as self.prompts_ahead:
            yield

    def indices(self, step: int, again: int = 0) -> list[int]:
        """Return a step's studies; `again` counts further ones, of steps behind the last."""
        settings = self.settings
        place = step + again * settings.steps
        return batch_indices(len(self.studies), settings.prompts, place, self.seed)

    def state_dict(self) -> State:
        """Return the loop's state for a checkpoint, without weights."""
        return {
            **dataclasses.asdict(self.state),
            "seconds": dict(self.step_log.clock.seconds),
            "optimizer": self.optimizer.state_dict(),
            "best": self._best.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "order": order_of(self.studies, self.settings.prompts),
            "axes": self.watch_axes.state_dict() if self.watch_axes else None,
            "ahead": self.ahead.state_dict(self._request()) if self.settings.ahead else None,
        }

    def load_state_dict(self, saved: State) -> None:
        self.state = LoopState(**{f.name: saved[f.name] for f in dataclasses.fields(LoopState)})
        sharding.load_optimizer(self.optimizer, saved["optimizer"])
        self._best.load_state_dict(saved["best"])
        order_of(self.studies, self.settings.prompts, saved["order"])
        self.algorithm.load_state_dict(saved["algorithm"])
        if self.watch_axes:
            self.watch_axes.load_state_dict(saved["axes"])
        ahead = saved.get("ahead")  # of before it a checkpoint has none
        if ahead is not None and ahead["request"] == self._request():
            self.ahead = Ahead(saved=ahead)
        self.step_log.clock.load(saved["seconds"])

    def _request(self) -> str:
        """A digest of what decides the next step's reports beside the weights."""
        settings, step = self.settings, self.state.step
        ids = [self.studies[i].id for i in self.indices(step)]
        how = (settings.temperature, settings.top_p, settings.max_new_tokens)
        return digest_of([step, ids, self.algorithm.sampled, *how])

    def has_steps_left(self) -> bool:
        """Validates where that is due, the start included; False when all steps are done."""
        settings, state, names = self.settings, self.state, self.eval.chosen_by
        last = state.step >= settings.steps  # a resume may ask for fewer
        if (last or state.step % settings.eval_every == 0) and state.validated != state.step:
            self.sampler.step = state.step
            with self.checkpointer.interruptible(state.step):
                values = self.validate()
                self.log.write(f"{self.algorithm.name}_val", state.step - 1, values)
                for line in alarm_lines([{**values, "step": state.step - 1}]):
                    if ranks.is_main():
                        warnings.warn(line, stacklevel=2)
            self.step_log.clock.lap("validate")
            value, *others = (chosen_value(values, by) for by in names)
            self._bar.show(**{names[0]: value})
            state.validated = state.step
            self._best.offer(state.step, value, others)
            self.step_log.clock.lap("validate")  # it may have written a checkpoint
        if last:
            self.sampler.release(self.policy)
        elif state.flat_row and state.flat_row == settings.flat_steps and ranks.is_main():
            warnings.warn(
                f"rl.flat_steps={settings.flat_steps} steps in a row had no group whose reports "
                "earn different rewards, so nothing is learned; look at the terms of the reward, "
                "raise rl.temperature or rl.group, or fine-tune first",
                stacklevel=2,
            )
        return not last

    @contextmanager
    def step(self) -> Iterator[int]:
        """Run one step, whole or not at all; first a checkpoint where one is due."""
        with self.checkpointer.step(self.state.step):
            self.step_log.begin()
            self.sampler.step = self.state.step
            yield self.state.step
            self.state.step += 1
        self._bar.advance(1, **self.step_log.shown)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time since the last phase; a stop comes at its end."""
        yield
        self.step_log.lap(name)
        if name != "update":  # the step is done but for its row
            self.checkpointer.check_stop()

    def read_references(self, indices: Sequence[int]) -> Future[None]:
        """Lets the rewards read this rank's references while reports are sampled."""
        return self.rewards.prefetch([self.studies[i] for i in ranks.shard(indices)])

    def complete(self, sampled: list[Group], step: int) -> tuple[list[Group], dict[str, float]]:
        """The groups with the members that the algorithm adds (edits, oracle), and its counts."""
        if not sampled:  # a rank without groups
            return [], {}
        groups, counts = self.algorithm.complete(sampled, step, self.policy.codec.reencode_from)
        self.checkpointer.on_failure_dump(partial(describe_groups, groups))
        return groups, counts

    def score(
        self, groups: list[Group], step: int
    ) -> tuple[list[Group], Mapping[str, np.ndarray], Mapping[str, Sequence[Mapping[str, Any]]]]:
        """Score the members that are scored, by term, and give what the terms noted.

        A member whose judge's answer cannot be read, and is left out, is scored no longer, nor is
        one that the algorithm leaves out for its reward (`edit.keep=not_worse`).
        """
        if not groups:
            return groups, {}, {}
        scored = [(m.text, group.study) for group in groups for m in group.members if m.scored]
        texts, studies = [text for text, _ in scored], [study for _, study in scored]
        if not texts:  # all were cut
            return groups, {name: np.zeros(0) for name in ("total", *self.reward.terms)}, {}
        progress = step / self.settings.steps
        scores: Mapping[str, np.ndarray] = self.rewards(texts, studies, progress)
        notes = getattr(scores, "notes", {})
        if self.reward.judge.unreadable != "stop":
            groups, scores, notes = read_members(groups, scores, notes)
        left_out = self.algorithm.leaves_out(groups, scores["total"])
        return without(left_out, groups, scores, notes)

    def compared(self, step: int) -> tuple[str, ...]:
        """Name the scores by which the members of a group are compared at a step."""
        if self.settings.combine == "sum":
            return ("total",)
        return self.reward.counting(step / self.settings.steps)

    def with_objective(self, batch: Batch, step: int) -> Batch:
        """The batch with the algorithm's objective; tells `record`. Raises NotFinite."""
        if not np.isfinite(batch.scores["total"]).all():
            raise NotFinite(f"a reward of step {step} is not finite; look at its terms")
        objective = self.algorithm.advantages(batch.groups_with_terms(), batch.rewards)
        batch = batch.with_objective(objective, self.settings)
        self.checkpointer.on_failure_dump(partial(describe_groups, batch.groups, batch))
        if self.record is not None:
            self.record(StepRecord(step, batch, self.policy.codec))
        return batch

    def log_step(self, step: int, batch: Batch, update: Mapping[str, float], tokens: int) -> None:
        """Count a step and write its row; `tokens` went through the update's forward."""
        self.state.count(batch)
        self.step_log.write(step, batch, update, tokens)

    def finish(self) -> RlResult:
        """Saves the best weights to `out`, with which the policy ends."""
        if self.reference is not None:
            self.reference.release()
        with self.checkpointer.interruptible(self.state.step):
            self._best.save(self.out, self.trained_as)
        self.step_log.clock.lap("validate")
        return RlResult(
            self.out,
            self._best.value,
            self._best.step,
            self.state.step,
            self.step_log.clock.total,
            dict(self.step_log.clock.seconds),
            self.state.flat_groups / self.state.all_groups,
            self.state.edits,
            self.state.rollouts,
        )


def require_reports(algorithm: Algorithm, studies: Sequence[Study]) -> None:
    """UserError where the algorithm needs reference reports and a study has none."""
    bare = next((study.id for study in studies if not study.report), None)
    if algorithm.needs_reports and bare is not None:
        raise UserError(
            f"rl.algorithm={algorithm.name} works towards reference reports, but study {bare} has "
            "none; use rl.algorithm=dr_grpo with reward.against=labels, as the recipe nih does"
        )


def describe_groups(groups: list[Group], batch: Batch | None = None) -> dict[str, Any]:
    """Describe the members of all groups in their order, for a failure dump.

    With the batch that they are, also the rewards of those that are scored, and advantages [S] or
    [N]."""
    known = {}
    if batch is not None:
        known["rewards"] = batch.rewards[batch.scored]
        known["advantages"] = batch.objective.advantages
    return {
        **known,
        "members": [
            {"study": group.study.id, "ids": m.ids, "origin": m.origin}
            for group in groups
            for m in group.members
        ],
    }
