"""Supervised fine-tuning: cross-entropy on the findings, to the validation plateau."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rrgkern import linear_token_logps
from rrgtrain.data.study import Study
from rrgtrain.engine.best import Best
from rrgtrain.engine.encode import PromptCache
from rrgtrain.engine.logs import RunLog
from rrgtrain.engine.optim import adamw, apply_step, learning_rate
from rrgtrain.engine.order import batch_indices
from rrgtrain.engine.progress import progress
from rrgtrain.errors import UserError
from rrgtrain.policy.forward import head, hidden_states
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Recipe

Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class SftResult:
    """`best` is the directory of the checkpoint with the best validation micro-F1."""

    best: Path
    best_f1: float
    best_step: int
    steps: int
    seconds: float
    phases: dict[str, float]
    rollouts: int = 0


def sft_loss(
    policy: Policy, prompts: PromptCache, studies: Sequence[Study]
) -> tuple[torch.Tensor, int]:
    """Mean cross-entropy of the references' tokens (end of turn included), and their number."""
    targets = [[policy.codec.encode(study.report or "")] for study in studies]
    hidden, batch = hidden_states(policy, [prompts(study) for study in studies], targets)
    weight, bias = head(policy)
    logps = linear_token_logps(hidden, weight, batch.targets, bias=bias).logps
    return -logps.mean(), int(batch.targets.numel())


def with_reports(studies: Sequence[Study]) -> list[Study]:
    """The studies that can be trained on; UserError where there is none."""
    usable = [study for study in studies if study.report]
    if not usable:
        raise UserError("no training study has a report; supervised fine-tuning needs references")
    return usable


def run_sft(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    recipe: Recipe,
    validate: Validate,
    out: Path,
    log: RunLog,
    *,
    until_plateau: bool = True,
) -> SftResult:
    """Trains `policy` in place; keeps the best checkpoint by validation micro-F1 in `out`.

    Stops after `sft.steps`, after `sft.wall_seconds`, or, with `until_plateau`, when
    `sft.patience` validations in a row bring less than `sft.min_delta`. The policy ends with
    the best checkpoint's weights.
    """
    settings = recipe.sft
    usable = with_reports(studies)
    optimizer = adamw(policy.model, settings.lr, settings.weight_decay)
    begin = time.perf_counter()
    best = Best(policy)
    step, plateau_f1, stale, validating = 0, -1.0, 0, 0.0
    policy.model.train()
    bar = progress(range(settings.steps), "sft")
    for step in bar:
        chosen = [usable[i] for i in batch_indices(len(usable), settings.batch, step, recipe.seed)]
        loss, tokens = sft_loss(policy, prompts, chosen)
        if not torch.isfinite(loss):
            raise UserError(f"the loss is {loss.item()} at step {step}; lower sft.lr")
        loss.backward()
        lr = learning_rate(step, settings.steps, settings.lr, settings.warmup, settings.schedule)
        norm = apply_step(optimizer, policy.model.parameters(), lr, settings.clip)
        log.write("sft", step, {"loss": loss.item(), "lr": lr, "grad_norm": norm, "tokens": tokens})
        bar.show(loss=loss.item())
        elapsed = time.perf_counter() - begin
        over = settings.wall_seconds is not None and elapsed > settings.wall_seconds
        if (step + 1) % settings.eval_every and step + 1 < settings.steps and not over:
            continue
        paused = time.perf_counter()
        values = validate()
        validating += time.perf_counter() - paused
        log.write("sft_val", step, values)
        bar.show(f1=values["micro_f1"])
        best.offer(step + 1, values["micro_f1"])
        if values["micro_f1"] > plateau_f1 + settings.min_delta:
            plateau_f1, stale = values["micro_f1"], 0
        else:
            stale += 1
        if over or (until_plateau and stale >= settings.patience):
            break
    best.restore()
    policy.save(out)
    seconds = time.perf_counter() - begin
    phases = {"train": seconds - validating, "validate": validating}
    return SftResult(out, best.f1, best.step, step + 1, seconds, phases)
