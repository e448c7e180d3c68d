"""The sampler's alarm and validations' eight axes, a line each for other trainers.

A loop of one's own:

    sampler, axes = SamplerWatch(limit=0.1), AxesWatch()
    row |= sampler(step, logps, sampler_logps, plays={"template": ...})   # before the update
    row |= axes(step, ids, reports, references, rewards)                  # at a validation

TRL 1.16 (the sampler's is `rrgtrain.integrations.trl_alarm`):

    trainer.add_callback(SamplerAlarm(trainer))
    trainer.add_callback(TrlAxes(trainer, column="report"))

verl 0.9, in a module that VERL_USE_EXTERNAL_MODULES names, or before the trainer is built:

    watch_verl()                          # with trainer.validation_data_dir=DIR for the axes

A sampler at fault stops the run before the update, with the likely cause; an axis that falls while
the reward rises is a line on standard error. Each row of `sampler/...`, `axis/...` and `alarm/...`
goes to the trainer's own log.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback

from rrgclinical.common.arguments import check_pairs, completion_text
from rrgclinical.severity import (
    AXIS,
    SPAN,
    Severity,
    Validated,
    alarm,
    alarm_lines,
    axes,
    rate_of,
)
from rrgpolicy.sampler_alarm import ROUNDING, Run, gap_row, sampler_alarm
from rrgtrain.errors import UserError


class SamplerWatch:
    """Compares, step by step, the log-probs of the trainer with those of the sampler."""

    def __init__(self, limit: float = ROUNDING[torch.bfloat16], **of_run: Any) -> None:
        """Take the largest mean gap in nats a token, and fields of `Run` that stay, as `top_p`."""
        self._of_run = {**of_run, "limit": limit}
        self._agreed = False
        Run(**self._of_run)  # a field that cannot be is refused here

    def __call__(
        self, step: int, trainer: Tensor, sampler: Tensor, **of_run: Any
    ) -> dict[str, float]:
        """Return the row of `gap_row`, {} of no tokens; UserError names a fault and its cause.

        trainer, sampler: log-probs [N] of the same tokens. of_run: fields of `Run` that change with
        the step, as `plays` and `images`. Raises TypeError and ValueError as `Run` and `gaps`.
        """
        run = Run(**{"agreed": self._agreed, **self._of_run, **of_run})
        fault = sampler_alarm(trainer, sampler, run)
        if not len(trainer):
            return {}
        row = gap_row(trainer, sampler, run.top_p)
        if fault is not None:
            raise UserError(
                f"trainer and sampler differ by {row['sampler/gap_mean']:.3g} nats a token on "
                f"average at step {step}, more than {run.limit:g}; likely {fault.line}"
            )
        self._agreed = True
        return row


class AxesWatch:
    """Count the eight axes of validations; tell when reward rises at their cost."""

    def __init__(self, table: str | None = None) -> None:
        """Take a table of `severity`, None the packaged one."""
        self._reader = Severity(table)
        self._past: list[Validated] = []

    def __call__(
        self,
        step: int,
        ids: Sequence[str],
        reports: Sequence[str],
        references: Sequence[str],
        rewards: Sequence[float],
    ) -> dict[str, float]:
        """Return `axis/NAME`, and `alarm/NAME` where one fell; print the alarm's line.

        All of one validation, R each. Rows are put in the order of their ids, of which one that
        comes again is counted, so the order of a loader does not matter. Raises TypeError and
        ValueError as `Severity.judge`, ValueError where the numbers differ.
        """
        reports, references = check_pairs(reports, references)
        if not len(ids) == len(reports) == len(rewards):
            raise ValueError(f"{len(ids)} ids, {len(reports)} reports, {len(rewards)} rewards")
        if not reports:
            return {}
        times: Counter[str] = Counter()
        names = []
        for name in ids:
            names.append(f"{name}#{times[name]}")
            times[name] += 1
        order = sorted(range(len(names)), key=names.__getitem__)
        own, truth = ([texts[i] for i in order] for texts in (reports, references))
        readings = self._reader.read(truth, keep=True)
        judged = self._reader.judge(own, truth, readings)
        counts = axes(judged, self._reader.read(own), readings, self._reader.table)
        reward = np.array([rewards[i] for i in order], dtype=np.float64)
        latest = Validated(tuple(names[i] for i in order), reward, counts)
        self._past = [*self._past[1 - SPAN :], latest]
        rates = {f"{AXIS}{name}": rate for name, of in counts.items() if (rate := rate_of(of)) >= 0}
        row = {**rates, **alarm(self._past)}
        for line in alarm_lines([{**row, "step": step - 1}]):
            print(line, file=sys.stderr)
        return row


class TrlAxes(TrainerCallback):
    """The axes of TRL's evaluations, `trainer.add_callback(TrlAxes(trainer))`; for TRL 1.16.

    Reads what the trainer writes and scores while it evaluates, of all processes, and logs the row
    behind each evaluation.
    """

    def __init__(self, trainer: Any, column: str = "report", table: str | None = None) -> None:
        """Take the trainer, and the data set's column of references; `id` names studies if there.

        UserError for a trainer that has no evaluation of completions.
        """
        if not callable(real := getattr(trainer, "_calculate_rewards", None)):
            raise UserError(
                f"{type(trainer).__name__} scores no completions; wanted TRL 1.16's GRPOTrainer"
            )
        self._trainer, self._column = trainer, column
        self._watch, self._rows = AxesWatch(table), list[tuple[str, str, str, float]]()

        @wraps(real)
        def watched(inputs: Any, prompts: Any, completions: Any, *rest: Any) -> Tensor:
            rewards: Tensor = real(inputs, prompts, completions, *rest)
            if not trainer.model.training:
                self._keep(inputs, completions, rewards)
            return rewards

        trainer._calculate_rewards = watched

    def _keep(self, inputs: Sequence[Mapping[str, Any]], completions: Any, rewards: Tensor) -> None:
        """Keep the rows of this process; TRL has gathered the rewards of all, in their order."""
        if self._column not in inputs[0]:
            have = ", ".join(sorted(inputs[0]))
            raise UserError(f"the data set has no column {self._column!r}, it has {have}")
        weights = self._trainer.reward_weights.to(rewards.device)
        totals = (rewards * weights).nansum(1)
        totals[rewards.isnan().all(1)] = torch.nan  # scored by nobody, which is not 0
        begin = self._trainer.accelerator.process_index * len(completions)
        own = totals[begin : begin + len(completions)].tolist()
        for row, completion, total in zip(inputs, completions, own, strict=True):
            reference = row[self._column]
            name = str(row.get("id", reference))
            self._rows.append((name, completion_text(completion), reference, total))

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the axes of the evaluation that has ended."""
        rows = gather_object(self._rows)
        self._rows = []
        ids, reports, references, rewards = ([row[k] for row in rows] for k in range(4))
        row = self._watch(state.global_step, ids, reports, references, rewards)
        if row:
            self._trainer.log(row)


def watch_verl(limit: float = ROUNDING[torch.bfloat16], table: str | None = None) -> None:
    """Put both into verl 0.9's RayPPOTrainer, once, in the process that drives it.

    limit: nats a token on average, by default what rounding allows in bf16. Rollouts are compared
    where verl keeps the sampler's log-probs (`rollout.calculate_log_probs=true`). Raises
    UserError where verl lacks what is watched.
    """
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.utils.debug import metrics

    parts: list[tuple[Any, str]] = [(metrics, "calculate_debug_metrics")]
    parts += [(RayPPOTrainer, name) for name in ("_validate", "_dump_generations")]
    if lacking := [name for owner, name in parts if not callable(getattr(owner, name, None))]:
        raise UserError(f"this verl has no {' and no '.join(lacking)}; wanted verl 0.9")
    if hasattr(RayPPOTrainer._validate, "__wrapped__"):
        return
    _watch_rollouts(metrics, SamplerWatch(limit))
    _watch_validations(RayPPOTrainer, AxesWatch(table))


def _watch_rollouts(metrics: Any, watch: SamplerWatch) -> None:
    """Compare where verl itself prints how far the two lie apart."""
    real: Callable[[Any], dict[str, Any]] = metrics.calculate_debug_metrics
    steps = 0

    @wraps(real)
    def calculate_debug_metrics(data: Any) -> dict[str, Any]:
        nonlocal steps
        steps += 1
        fields = data.batch
        mask = fields["response_mask"].bool()
        shown = data.non_tensor_batch.get("multi_modal_inputs")
        images = None
        if shown is not None:
            rows = torch.tensor([bool(one) for one in shown])
            images = rows[:, None].expand_as(mask)[mask.cpu()]
        pair = (
            fields[name][mask].double().cpu() for name in ("old_log_probs", "rollout_log_probs")
        )
        return {**real(data), **watch(steps, *pair, images=images)}

    metrics.calculate_debug_metrics = calculate_debug_metrics


def _watch_validations(trainer_class: Any, watch: AxesWatch) -> None:
    """Read what `_validate` dumps, and add the row to the metrics that it returns."""
    validate, dump = trainer_class._validate, trainer_class._dump_generations

    @wraps(dump)
    def dumped(self: Any, **of: Any) -> None:
        dump(self, **of)
        self._rrg_dumped = of

    @wraps(validate)
    def validated(self: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        if not self.config.trainer.get("validation_data_dir", None):
            raise UserError(
                "verl hands on no validation's texts; set trainer.validation_data_dir=DIR"
            )
        result: dict[str, Any] = validate(self, *arguments, **options)
        of = self._rrg_dumped
        if lacking := [i for i, text in enumerate(of["gts"]) if not isinstance(text, str)]:
            raise UserError(
                f"validation sample {lacking[0]} has no reward_model.ground_truth; wanted the "
                "text of its reference"
            )
        row = watch(self.global_steps, of["gts"], of["outputs"], of["gts"], of["scores"])
        # a validation that is merged with a training step hands on no metrics
        return result if "reward_extra_infos_dict" in result else {**result, **row}

    trainer_class._validate, trainer_class._dump_generations = validated, dumped
