"""Run stages, each leaving its checkpoint and rows in one run directory."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rrgdata.study import Study
from rrgpolicy.model.policy import Policy, training_only
from rrgpolicy.ranks import nodes, ranks, sharding
from rrgpolicy.ranks.sharding import load_weights
from rrgtrain.algorithms import Algorithm, build_algorithm
from rrgtrain.config import dump_config, replaced
from rrgtrain.errors import RewardError, Stopped, UserError
from rrgtrain.log.logs import NoLog, RunLog
from rrgtrain.run.checked import SERVED, check
from rrgtrain.run.data import open_data
from rrgtrain.run.scorecards import judge_of
from rrgtrain.run.session import Session, load_for, open_session
from rrgtrain.schema import LogSettings, Recipe
from rrgtrain.state.checkpointer import Checkpointer, require_verb
from rrgtrain.state.identity import (
    as_line,
    changes_of,
    digest_of,
    identity_of,
    require_settled,
    settled,
    values_of,
)
from rrgtrain.state.null_checkpointer import NullCheckpointer, State
from rrgtrain.state.remembered import to_remember
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.evaluate import AxesWatch, Evaluation
from rrgtrain.train.rl import train_rl
from rrgtrain.train.rl_run import RlResult, RlRun
from rrgtrain.train.sft import SftResult, SftRun, train_sft
from rrgtrain.train.step_record import StepRecord, StepRecords

SPENT = "spent"
"""Where the processes of a run write what their endpoints have cost."""

Result = TypeVar("Result", SftResult, RlResult)


@dataclass
class Stages:
    """Bind a session to a run directory.

    A context manager that closes the log and the lock.

    With a `Checkpointer` every finished stage is remembered, and gives after a resume what it
    gave before.
    """

    session: Session
    run: RunDir
    log: RunLog
    algorithm: Algorithm | None = None
    checkpointer: NullCheckpointer = field(default_factory=NullCheckpointer)
    tuned: Path | None = None
    """The checkpoint of the fine-tuning in this process, whose weights the policy has."""
    began: float = field(default_factory=time.perf_counter)
    """The clock's seconds at the start, less what the run took before a resume."""
    judged: list[Study] = field(default_factory=list)
    """The studies of an evaluation before the resume, which the later ones are of too."""

    @classmethod
    def open(
        cls,
        recipe: Recipe,
        out: Path,
        *,
        sft: bool = False,
        rl: bool = False,
        verb: str | None = None,
        resume: bool = False,
    ) -> Stages:
        """Take `out`, read the data, write the run's first file, open the policy.

        `sft` and `rl` say which stages will follow, so that what they cannot do with this recipe
        or this data is refused here. On bad input nothing is left behind, so the same directory
        can be used again. `verb` is the command that resumes the run; without one no checkpoints
        are kept, and what the same recipe has left unfinished is begun again. `resume` goes on
        with a run that is there.
        """
        began = time.perf_counter()
        asked = recipe
        if verb is not None and recipe.reward.cache is None:
            # what models read in references is not read again after a resume
            reward = dataclasses.replace(recipe.reward, cache=str(out / "cache"))
            recipe = replaced(recipe, reward=reward)
        checked = check(recipe, out, sft=sft, rl=rl)
        with ranks.main_first():
            run = RunDir(out)
            if ranks.is_main():
                command = None if verb else digest_of(dataclasses.asdict(asked))
                run = RunDir.create(out, resume=resume, command=command)
        log: RunLog | None = None
        try:
            if nodes.count() > 1:
                nodes.require_shared(run.path)
            if verb is not None:
                parts = identity_of(asked)
                if resume:
                    require_verb(run, verb)
                    if ranks.is_main():
                        require_settled(run, settled(parts))
            before = values_of(run.config, {}) if resume and ranks.is_main() else {}
            data = open_data(checked, out)
            if ranks.is_main():
                # the scorecard at the end: what it lacks is said before anything is trained
                judge_of(recipe.eval, data.rewards, recipe.data)
                dump_config(asked, run.config)
            session = open_session(data, out, resume=resume)
            if verb is not None:
                session.rewards.spending.keep_in(out / SPENT)
            log = RunLog(run, recipe.log) if ranks.is_main() else NoLog()
            checkpointer: NullCheckpointer = NullCheckpointer()
            if verb is not None:
                checkpointer = Checkpointer(run, session.policy, log, verb, recipe.checkpoint)
                checkpointer.settings = settled(parts)
                if ranks.is_main():
                    checkpointer.values = values_of(run.config, parts)
                if resume:
                    where = checkpointer.resume()
                    if ranks.is_main():
                        print(f"rrgtrain: resuming {out} {where}", file=sys.stderr)
                        lines = _tell_changes(checkpointer, run, before, where)
                        dump_config(asked, run.config, lines)
        except BaseException as error:
            passing = isinstance(error, Stopped | KeyboardInterrupt)
            if log is not None:
                log.close()
            if ranks.is_main() and not resume and not passing:
                run.config.unlink(missing_ok=True)
                run.discard()
            run.close()
            raise
        began -= checkpointer.earlier
        return cls(session, run, log, checked.algorithm, checkpointer, began=began)

    def sft(self, *, until_plateau: bool = True) -> SftResult:
        """Fine-tunes the policy; its best weights are in checkpoints/sft."""
        session = self.session
        if (found := self.checkpointer.result("sft")) is not None:
            if self.checkpointer.within is not None:
                # A later loop goes on; its reference is the policy that it started from.
                kept = self._result(SftResult, found).best
                started = load_for(session.recipe.policy, kept, masters=True)
                if sharding.is_sharded(session.policy):
                    self._go_on_with(started)
                else:
                    load_weights(session.policy, dict(started.model.named_parameters()))
            return self._result(SftResult, found)
        train = session.recipe.sft.train
        with self.checkpointer.running(), training_only(session.policy, train):
            result = train_sft(
                SftRun(
                    session.policy,
                    session.prompts,
                    session.split("train"),
                    session.recipe.sft,
                    session.validator(),
                    self.run.checkpoints / "sft",
                    self.log,
                    **self._of_recipe(),
                    until_plateau=until_plateau,
                    checkpointer=self.checkpointer,
                    sampler=session.sampler,
                )
            )
            self.checkpointer.finish("sft", self._state(result))
        self.tuned = result.best
        return result

    def _of_recipe(self) -> dict[str, Any]:
        """Give what both loops read of the recipe beside their own section."""
        recipe = self.session.recipe
        own = {name: getattr(recipe, name) for name in ("seed", "scale", "eval", "reward")}
        return {**own, "trained_as": to_remember(recipe, self.run.path)}

    def _go_on_with(self, started: Policy) -> None:
        """Take a policy in place of the sharded one, with its weights: a reference copies them."""
        self.session.policy.go_on_with(started.model, started.layout)
        sharding.read(self.session.policy, self.session.recipe.scale.shard)

    def rl(self, record: Callable[[StepRecord], None] | None = None) -> RlResult:
        """Trains by the recipe's algorithm; the best weights are in checkpoints/<algorithm>.

        record: sees every batch before its update, in place of what writes the run's steps/.
        """
        session = self.session
        name = session.recipe.rl.algorithm
        if (found := self.checkpointer.result(name)) is not None:
            return self._result(RlResult, found)
        recipe, policy = session.recipe, session.policy
        if self.tuned is not None and sharding.is_sharded(policy):
            # laid out for fine-tuning: what trains now, and the reference, start from a whole model
            self._go_on_with(load_for(recipe.policy, self.tuned, masters=True))
        watch = AxesWatch(session.rewards.scored_text, session.rewards.model("severity"))
        log = recipe.log if ranks.is_main() else LogSettings(records=0)
        with self.checkpointer.running():
            # the run, optimiser included, is gone before the stage is written
            result = train_rl(
                RlRun(
                    policy,
                    session.prompts,
                    session.chosen or session.split("train"),
                    recipe.rl,
                    self.algorithm or build_algorithm(recipe),
                    session.rewards,
                    session.validator(watch),
                    self.run.checkpoints / name.replace(":", "."),
                    self.log,
                    **self._of_recipe(),
                    start=recipe.policy,
                    rollout=recipe.rollout,
                    record=record or StepRecords(self.run.steps, log),
                    checkpointer=self.checkpointer,
                    sampler=session.sampler,
                    watch_axes=watch,
                )
            )
            self.checkpointer.finish(name, self._state(result))
        return result

    def evaluate(self, name: str) -> Evaluation:
        """The policy as it stands on the recipe's held-out split.

        After a resume all systems are evaluated on the same studies: those of the first evaluation
        that are still in the data. A warning counts the others.
        """
        settings = self.session.recipe.eval
        stage = f"evaluate {name}"
        held_out = self.session.split(settings.split)
        if (found := self.checkpointer.result(stage)) is not None:
            return self._evaluated(stage, held_out, found)
        self.session.sampler.step = None  # it may be the best of them
        try:
            evaluation = self.session.evaluate(
                self.judged or held_out[: settings.limit], description=stage
            )
        except RewardError as error:
            raise Stopped(f"{stage}: {error}") from error
        self.session.sampler.release(self.session.policy)
        self.checkpointer.finish(stage, evaluation.state_dict())
        return evaluation

    def _evaluated(self, stage: str, held_out: list[Study], state: State) -> Evaluation:
        """Take an evaluation from before the resume, for the studies that are still there."""
        evaluation = Evaluation.from_state(held_out, state)
        self.judged, written = evaluation.studies, len(state["reports"])
        if not self.judged:
            raise UserError(
                f"none of the {written} studies of {stage!r} is among the "
                f"{self.session.recipe.eval.split} studies of the data; put data and eval.split "
                "back, or start a new run"
            )
        if (lost := written - len(self.judged)) and ranks.is_main():
            warnings.warn(
                f"{lost} of {written} studies of {stage!r} are no longer in the data, and left out",
                stacklevel=2,
            )
        return evaluation

    def _state(self, result: SftResult | RlResult) -> State:
        # below the run's own directory, which may move before it is resumed
        best = result.best.relative_to(self.run.path)
        return {**dataclasses.asdict(result), "best": str(best)}

    def _result(self, kind: type[Result], state: State) -> Result:
        fields: dict[str, Any] = {f.name: state[f.name] for f in dataclasses.fields(kind)}
        return kind(**{**fields, "best": self.run.path / state["best"]})

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exc: object) -> None:
        with ExitStack() as stack:
            stack.callback(self.run.close)
            stack.callback(self.log.close)
            if ranks.is_main():
                stack.callback(shutil.rmtree, self.run.path / SERVED, ignore_errors=True)
            stack.callback(self.session.sampler.close)
            stack.callback(self.session.rewards.close)


def _tell_changes(
    checkpointer: Checkpointer, run: RunDir, before: dict[str, str], where: str
) -> list[str]:
    """Say what this resume changes; return it behind what earlier ones changed, a line each."""
    about = checkpointer.resumed_from
    place = {
        "step": about.get("step", 0),
        "resumed": where.partition(":")[0],
        "row": len(run.metrics.read_bytes().splitlines()),
    }
    known = len(about.get("changes", []))
    checkpointer.changes = changes_of(about, before, checkpointer.values, place)
    lines = [as_line(change) for change in checkpointer.changes]
    for line in lines[known:]:
        print(f"rrgtrain: {line}", file=sys.stderr)
    return lines
