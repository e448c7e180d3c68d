"""Supervised fine-tuning: cross-entropy on the findings, to the validation plateau."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from rrgkern import linear_token_logps
from rrgtrain.data.study import Study
from rrgtrain.dist import ranks, sharding
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.log.speed import peak_memory
from rrgtrain.policy.forward import head, hidden_states
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.schema import Recipe, SftSettings
from rrgtrain.state.checkpointer import NullCheckpointer, State
from rrgtrain.train.batch_order import batch_indices
from rrgtrain.train.best import chosen_of
from rrgtrain.train.evaluate import chosen_value
from rrgtrain.train.failure_dump import describe_references
from rrgtrain.train.micro_batch import idle_prompt, with_images, within_budget
from rrgtrain.train.optim import adamw, apply_step, learning_rate
from rrgtrain.train.prompt_cache import PromptCache
from rrgtrain.train.target_text import PLAIN, target_text
from rrgtrain.util.progress import Bar, progress
from rrgtrain.util.stopwatch import Stopwatch

Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class SftResult:
    """`best` is the directory of the checkpoint that `sft.choose` chose, by default the one whose
    validation is best by `eval.best_by`; `best_value` and `best_step` are that checkpoint's. `lr`
    is the peak learning rate after the drops that were made."""

    best: Path
    best_value: float
    best_step: int
    steps: int
    seconds: float
    phases: dict[str, float]
    lr: float
    rollouts: int = 0


def sft_loss(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    template: str = PLAIN,
    among: int | None = None,
) -> tuple[torch.Tensor, int]:
    """Mean cross-entropy of the references' tokens (end of turn included), and their number.

    among: tokens of the batch that the studies are a part of; the losses of its parts add up.
    """
    targets = references(policy, studies, template)
    tokens = sum(map(len, targets))
    loss = -_logps(policy, [prompts(study) for study in studies], targets).mean()
    return loss * (tokens / (among or tokens)), tokens


def sft_gradients(
    policy: Policy, prompts: PromptCache, studies: Sequence[Study], settings: SftSettings, step: int
) -> tuple[float, int]:
    """Adds the gradient of `sft_loss` over `studies` into the parameters' `.grad`.

    Each rank computes its share of the studies, in micro-batches of `sft.token_budget` tokens.
    Returns the loss and the number of scored tokens of all. Raises NotFinite.
    """
    own = ranks.shard(studies)
    lengths = list(map(len, references(policy, own, settings.template)))
    tokens = sum(ranks.gather(sum(lengths)))
    sizes = [len(prompts(study).input_ids) + n for study, n in zip(own, lengths, strict=True)]
    chunks = within_budget(own, sizes, settings.token_budget)
    total = 0.0
    for chunk in sharding.pad_to_lockstep(policy, chunks, []):
        if chunk:
            loss, _ = sft_loss(policy, prompts, chunk, settings.template, tokens)
        else:
            idle = idle_prompt(prompts(studies[0]))
            loss = 0.0 * _logps(policy, [idle], [idle.input_ids]).sum()
        if not torch.isfinite(loss):
            raise NotFinite(f"the loss is {loss.item()} at step {step}; lower sft.lr")
        sharding.backward(policy, loss)
        total += loss.item()
    everywhere = sum(ranks.gather(total))
    seen = any(prompts(study).pixel_values is not None for study in own)
    sharding.drop_unused_gradients(policy, images=seen)
    return everywhere, tokens


def references(policy: Policy, studies: Sequence[Study], template: str) -> list[torch.Tensor]:
    """What the policy shall write about each study, as ids, the end of turn included."""
    return [policy.codec.encode(target_text(study, template)) for study in studies]


def _logps(
    policy: Policy, prompts: list[EncodedPrompt], targets: list[torch.Tensor]
) -> torch.Tensor:
    """[T] log-probabilities of all the targets' tokens."""

    def compute() -> torch.Tensor:
        hidden, batch = hidden_states(policy, prompts, [[target] for target in targets])
        weight, bias = head(policy)
        return linear_token_logps(hidden, weight, batch.targets, bias=bias).logps

    return sharding.forward(policy, compute, images=with_images(prompts))


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
    checkpointer: NullCheckpointer | None = None,
) -> SftResult:
    """Trains `policy` in place; keeps the checkpoint that `sft.choose` asks for in `out`.

    Stops after `sft.steps`, after `sft.wall_seconds`, or, with `until_plateau`, when
    `sft.patience` validations in a row bring less than `sft.min_delta` and no `sft.drops` is
    left. The policy ends with that checkpoint's weights. `checkpointer` makes it resumable.
    """
    settings, checkpointer, by = recipe.sft, checkpointer or NullCheckpointer(), recipe.eval.best_by
    usable = with_reports(studies)
    sharding.setup(recipe.scale.mode, policy)
    optimizer = adamw(policy.model, settings.lr, settings.weight_decay)

    def peak() -> float:
        return settings.lr * settings.drop_factor**at.drops

    best, clock, at = (
        chosen_of(policy, settings, by, checkpointer),
        Stopwatch(("train", "validate")),
        _Place(),
    )

    def state() -> State:
        return {
            **dataclasses.asdict(at),
            "seconds": dict(clock.seconds),
            "optimizer": optimizer.state_dict(),
            "best": best.state_dict(),
        }

    if (saved := checkpointer.begin("sft", state)) is not None:
        # checkpoints of before eval.best_by
        saved.setdefault("plateau", saved.get("plateau_f1"))
        at = _Place(**{f.name: saved[f.name] for f in dataclasses.fields(_Place)})
        sharding.load_optimizer(optimizer, saved["optimizer"])
        best.load_state_dict(saved["best"])
        if math.isinf(best.value):  # chosen by another metric
            at.plateau = -math.inf
        clock.load(saved["seconds"])
        saved = None  # as large as weights and optimiser together
    policy.model.train()
    bar: Bar[int] = progress(settings.steps, "sft", done=at.step)

    def ended() -> bool:
        """Validates where that is due; whether the training has come to its end."""
        late = settings.wall_seconds is not None and clock.total > settings.wall_seconds
        over = ranks.broadcast_from_main(late)
        last = at.step == settings.steps or over
        if at.step == 0 or (at.step % settings.eval_every and not last):
            return False
        if at.validated < at.step:
            with checkpointer.interruptible(at.step):
                values = validate()
                log.write("sft_val", at.step - 1, values)
            clock.lap("validate")
            value = chosen_value(values, by)
            bar.show(**{by: value})
            if value > at.plateau + settings.min_delta:
                at.plateau, at.stale = value, 0
            else:
                at.stale += 1
            at.validated = at.step
            best.offer(at.step, value)
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
            with checkpointer.step(at.step):
                indices = batch_indices(len(usable), settings.batch, at.step, recipe.seed)
                chosen = [usable[i] for i in indices]
                template = settings.template
                checkpointer.on_failure_dump(partial(describe_references, policy, chosen, template))
                loss, tokens = sft_gradients(policy, prompts, chosen, settings, at.step)
                lr = learning_rate(
                    at.step, settings.steps, peak(), settings.warmup, settings.schedule
                )
                norm = apply_step(
                    optimizer, policy.model.parameters(), lr, settings.clip, checkpointer.mark_dirty
                )
                spent = clock.lap("train")
                row = {"loss": loss, "lr": lr, "grad_norm": norm, "tokens": tokens}
                pace = {"seconds/train": spent, "speed/scored_tokens": tokens / spent}
                memory = {"memory/peak_mib": max(ranks.gather(peak_memory(policy.device))) / 2**20}
                log.write("sft", at.step, {**row, **pace, **memory})
                at.step += 1
            bar.advance(loss=row["loss"])
    best.restore()
    with checkpointer.interruptible(at.step):
        sharding.save_policy(policy, out, recipe)
    clock.lap("train")
    return SftResult(out, best.value, best.step, at.step, clock.total, dict(clock.seconds), peak())


@dataclass
class _Place:
    """Where the loop stands: steps done, the step last validated, the plateau, drops made."""

    step: int = 0
    validated: int = 0
    plateau: float = -math.inf
    stale: int = 0
    drops: int = 0
