"""Supervised fine-tuning: cross-entropy on the findings, to the validation plateau."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from rrgkern import linear_token_logps
from rrgtrain.data.study import Study
from rrgtrain.engine.best import chosen_of
from rrgtrain.engine.describe import describe_references
from rrgtrain.engine.encode import PromptCache
from rrgtrain.engine.keeper import State, Unkept
from rrgtrain.engine.logs import RunLog
from rrgtrain.engine.optim import adamw, apply_step, learning_rate
from rrgtrain.engine.order import batch_indices
from rrgtrain.engine.progress import Bar, progress
from rrgtrain.engine.rundir import atomic_directory
from rrgtrain.engine.speed import peak_memory
from rrgtrain.engine.stopwatch import Stopwatch
from rrgtrain.engine.target import PLAIN, target_text
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.policy.forward import head, hidden_states
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Recipe

Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class SftResult:
    """`best` is the directory of the checkpoint that `sft.choose` chose, by default the one with
    the best validation micro-F1; `best_f1` and `best_step` are that checkpoint's. `lr` is the peak
    learning rate after the drops that were made."""

    best: Path
    best_f1: float
    best_step: int
    steps: int
    seconds: float
    phases: dict[str, float]
    lr: float
    rollouts: int = 0


def sft_loss(
    policy: Policy, prompts: PromptCache, studies: Sequence[Study], template: str = PLAIN
) -> tuple[torch.Tensor, int]:
    """Mean cross-entropy of the references' tokens (end of turn included), and their number."""
    targets = [[policy.codec.encode(target_text(study, template))] for study in studies]
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
    keeper: Unkept | None = None,
) -> SftResult:
    """Trains `policy` in place; keeps the checkpoint that `sft.choose` asks for in `out`.

    Stops after `sft.steps`, after `sft.wall_seconds`, or, with `until_plateau`, when
    `sft.patience` validations in a row bring less than `sft.min_delta` and no `sft.drops` is
    left. The policy ends with that checkpoint's weights. `keeper` makes it resumable.
    """
    settings, keeper = recipe.sft, keeper or Unkept()
    usable = with_reports(studies)
    optimizer = adamw(policy.model, settings.lr, settings.weight_decay)

    def peak() -> float:
        return settings.lr * settings.drop_factor**at.drops

    best, clock, at = chosen_of(policy, settings), Stopwatch(("train", "validate")), _Place()

    def state() -> State:
        return {
            **dataclasses.asdict(at),
            "seconds": dict(clock.seconds),
            "optimizer": optimizer.state_dict(),
            "best": best.state_dict(),
        }

    if (saved := keeper.begin("sft", state)) is not None:
        at = _Place(**{f.name: saved[f.name] for f in dataclasses.fields(_Place)})
        optimizer.load_state_dict(saved["optimizer"])
        best.load_state_dict(saved["best"])
        clock.load(saved["seconds"])
        saved = None  # as large as weights and optimiser together
    policy.model.train()
    bar: Bar[int] = progress(settings.steps, "sft", done=at.step)

    def ended() -> bool:
        """Validates where that is due; whether the training has come to its end."""
        over = settings.wall_seconds is not None and clock.total > settings.wall_seconds
        last = at.step == settings.steps or over
        if at.step == 0 or (at.step % settings.eval_every and not last):
            return False
        if at.validated < at.step:
            with keeper.between(at.step):
                values = validate()
                log.write("sft_val", at.step - 1, values)
            clock.lap("validate")
            bar.show(f1=values["micro_f1"])
            best.offer(at.step, values["micro_f1"])
            if values["micro_f1"] > at.plateau_f1 + settings.min_delta:
                at.plateau_f1, at.stale = values["micro_f1"], 0
            else:
                at.stale += 1
            at.validated = at.step
        plateau = until_plateau and at.stale >= settings.patience
        if plateau and not last and at.drops < settings.drops:
            drop()
            return False
        return last or plateau

    def drop() -> None:
        """From the best weights on at a smaller rate; the moments were of another place."""
        nonlocal optimizer
        best.restore()
        optimizer = adamw(policy.model, settings.lr, settings.weight_decay)
        at.drops, at.stale = at.drops + 1, 0

    with bar:
        while not ended():
            with keeper.step(at.step):
                indices = batch_indices(len(usable), settings.batch, at.step, recipe.seed)
                chosen = [usable[i] for i in indices]
                template = settings.template
                keeper.describe(partial(describe_references, policy, chosen, template))
                loss, tokens = sft_loss(policy, prompts, chosen, template)
                if not torch.isfinite(loss):
                    raise NotFinite(f"the loss is {loss.item()} at step {at.step}; lower sft.lr")
                loss.backward()
                lr = learning_rate(
                    at.step, settings.steps, peak(), settings.warmup, settings.schedule
                )
                norm = apply_step(
                    optimizer, policy.model.parameters(), lr, settings.clip, keeper.changing
                )
                spent = clock.lap("train")
                row = {"loss": loss.item(), "lr": lr, "grad_norm": norm, "tokens": tokens}
                pace = {"seconds/train": spent, "speed/scored_tokens": tokens / spent}
                memory = {"memory/peak_mib": peak_memory(policy.device) / 2**20}
                log.write("sft", at.step, {**row, **pace, **memory})
                at.step += 1
            bar.advance(loss=row["loss"])
    best.restore()
    with keeper.between(at.step), atomic_directory(out) as partial_out:
        policy.save(partial_out)
    clock.lap("train")
    return SftResult(out, best.f1, best.step, at.step, clock.total, dict(clock.seconds), peak())


@dataclass
class _Place:
    """Where the loop stands: steps done, the step last validated, the plateau, drops made."""

    step: int = 0
    validated: int = 0
    plateau_f1: float = -1.0
    stale: int = 0
    drops: int = 0
