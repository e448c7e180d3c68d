"""Fine-tune on references: cross-entropy on the findings, to the validation plateau."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rrgclinical.common.progress import Bar, progress
from rrgclinical.common.stopwatch import Stopwatch
from rrgdata.study import Study
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks, sharding
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import EvalSettings, RewardSettings, ScaleSettings, SftSettings
from rrgtrain.state.null_checkpointer import NullCheckpointer, State
from rrgtrain.train.best import chosen_of, judged_settings
from rrgtrain.train.evaluate import chosen_value
from rrgtrain.train.gradients import read_at_once
from rrgtrain.train.loader import PromptLoader, batch_indices, order_of
from rrgtrain.train.micro_batch import with_images, within_budget
from rrgtrain.train.optim import apply_step, clip_gradients, learning_rate, optimizer_of
from rrgtrain.train.step_log import peak_memory
from rrgtrain.train.target_text import PLAIN, target_text

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
    prompts: Sequence[EncodedPrompt],
    studies: Sequence[Study],
    template: str = PLAIN,
    among: int | None = None,
) -> tuple[torch.Tensor, int]:
    """Mean cross-entropy of the references' tokens (end of turn included), and their number.

    prompts: those of the studies.
    among: tokens of the batch that the studies are a part of; the losses of its parts add up.
    """
    targets = references(policy, studies, template)
    tokens = sum(map(len, targets))
    loss = -_logps(policy, prompts, targets).mean()
    return loss * (tokens / (among or tokens)), tokens


def own_share(studies: Sequence[Study]) -> Sequence[Study]:
    """Return this rank's share of a batch, or the first study to idle on."""
    return ranks.shard(studies) or studies[:1]


def sft_gradients(
    policy: Policy,
    prompts: Sequence[EncodedPrompt],
    studies: Sequence[Study],
    settings: SftSettings,
) -> tuple[list[torch.Tensor], int]:
    """Adds the gradient of `sft_loss` over `studies` into the parameters' `.grad`.

    Each rank computes its share of the studies, in micro-batches of `sft.token_budget` tokens;
    `prompts` are those of `own_share(studies)`.
    Returns the losses of this rank's micro-batches, on the device, and the number of scored tokens
    of all ranks; see `read_losses`.
    """
    own = ranks.shard(studies)
    lengths = list(map(len, references(policy, own, settings.template)))
    tokens = sum(ranks.gather(sum(lengths)))
    pairs = list(zip(prompts[: len(own)], own, strict=True))
    sizes = [len(prompt.input_ids) + n for (prompt, _), n in zip(pairs, lengths, strict=True)]
    chunks = within_budget(pairs, sizes, settings.token_budget)
    losses = []
    for chunk in sharding.pad_to_lockstep(policy, chunks, []):
        if chunk:
            encoded, written = zip(*chunk, strict=True)
            loss, _ = sft_loss(policy, encoded, written, settings.template, tokens)
        else:
            idle = prompts[0].one_token()
            loss = 0.0 * _logps(policy, [idle], [idle.input_ids]).sum()
        losses.append(loss.detach())
        # A tower that trains alone has no part in studies without images; shards take part always.
        tower_idles = settings.train == "vision" and not with_images(p for p, _ in chunk)
        if loss.requires_grad or not tower_idles:
            sharding.backward(policy, loss)
    sharding.drop_unused_gradients(policy, images=with_images(prompts[: len(own)]))
    return losses, tokens


def read_losses(
    losses: Sequence[torch.Tensor], norm: torch.Tensor, step: int
) -> tuple[float, float]:
    """Read the loss of all ranks and the norm at once.

    The host waits for the device here and nowhere else in a step. All ranks call it. Raises
    NotFinite.
    """
    own, others = read_at_once(losses, [norm])
    for loss in own:
        if not torch.isfinite(loss):
            raise NotFinite(f"the loss is {loss.item()} at step {step}; lower sft.lr")
    return sum(ranks.gather(sum((loss.item() for loss in own), 0.0))), others[0].item()


def references(policy: Policy, studies: Sequence[Study], template: str) -> list[torch.Tensor]:
    """Return the target of each study as ids, end of turn included."""
    return [policy.codec.encode(target_text(study, template)) for study in studies]


def _logps(
    policy: Policy, prompts: Sequence[EncodedPrompt], targets: list[torch.Tensor]
) -> torch.Tensor:
    """[T] log-probabilities of all the targets' tokens."""

    def compute() -> torch.Tensor:
        hidden, batch = hidden_states(policy, prompts, [[target] for target in targets])
        return head_logps(policy, hidden, batch.targets)

    return sharding.forward(policy, compute, images=with_images(prompts))


def with_reports(studies: Sequence[Study]) -> list[Study]:
    """The studies that can be trained on; UserError where there is none."""
    usable = [study for study in studies if study.report]
    if not usable:
        raise UserError("no training study has a report; supervised fine-tuning needs references")
    return usable


def describe_references(
    policy: Policy, studies: Sequence[Study], template: str = PLAIN
) -> dict[str, Any]:
    """The references that fine-tuning learns from, for a failure dump."""
    rows = zip(studies, references(policy, studies, template), strict=True)
    return {"members": [{"study": s.id, "ids": ids, "origin": "reference"} for s, ids in rows]}


@dataclass
class SftState:
    """Hold the steps done, the step last validated, the plateau, and the drops made."""

    step: int = 0
    validated: int = 0
    plateau: float = -math.inf
    stale: int = 0
    drops: int = 0


@dataclass
class SftRun:
    """Hold the parts and the position of a fine-tuning.

    validate: metrics of the policy on held-out studies. out: directory of the chosen checkpoint.
    trained_as: see `to_remember`. until_plateau: whether it ends at the plateau. checkpointer:
    makes the run resumable. sampler: that of `validate`.
    """

    policy: Policy
    prompts: PromptLoader
    studies: Sequence[Study]
    settings: SftSettings
    validate: Validate
    out: Path
    log: RunLog
    seed: int
    scale: ScaleSettings
    eval: EvalSettings
    reward: RewardSettings
    trained_as: Mapping[str, Any]
    until_plateau: bool = True
    checkpointer: NullCheckpointer = field(default_factory=NullCheckpointer)
    sampler: PolicySampler = field(default_factory=PolicySampler)
    state: SftState = field(default_factory=SftState)
    optimizer: torch.optim.Optimizer = field(init=False)

    @contextmanager
    def started(self) -> Iterator[None]:
        """Lays the policy out, makes the optimiser, goes on where a checkpoint stands; shows the
        progress of the steps inside."""
        settings = self.settings
        self.studies = with_reports(self.studies)
        sharding.setup(self.scale.mode, self.policy, shard=self.scale.shard)
        self.optimizer = optimizer_of(self.policy.model, settings)
        judged = judged_settings(self.eval, self.reward)
        self._best = chosen_of(self.policy, settings, judged, self.checkpointer)
        self._clock = Stopwatch(("train", "validate"))
        saved = self.checkpointer.begin("sft", self.state_dict)
        if saved is not None:
            self.load_state_dict(saved)
        saved = None  # as large as weights and optimiser together
        self.policy.model.train()
        self._bar: Bar[int] = progress(settings.steps, "sft", done=self.state.step)
        steps = range(self.state.step, settings.steps)
        own = (own_share(self._studies_of(step)) for step in steps)
        with self._bar, closing(self.prompts.ahead(own)) as self._ahead:
            yield

    def _studies_of(self, step: int) -> list[Study]:
        batch = self.settings.batch
        order = batch_indices(len(self.studies), batch, step, self.seed)
        return [self.studies[i] for i in order]

    def state_dict(self) -> State:
        """Return the loop's state for a checkpoint, without weights."""
        return {
            **dataclasses.asdict(self.state),
            "seconds": dict(self._clock.seconds),
            "optimizer": self.optimizer.state_dict(),
            "best": self._best.state_dict(),
            "order": order_of(self.studies, self.settings.batch),
        }

    def load_state_dict(self, saved: State) -> None:
        self.state = SftState(**{f.name: saved[f.name] for f in dataclasses.fields(SftState)})
        sharding.load_optimizer(self.optimizer, saved["optimizer"])
        self._best.load_state_dict(saved["best"])
        order_of(self.studies, self.settings.batch, saved["order"])
        if math.isinf(self._best.value):  # chosen by another metric
            self.state.plateau = -math.inf
        self._clock.load(saved["seconds"])

    @property
    def peak_lr(self) -> float:
        """The peak learning rate after the drops that were made."""
        return self.settings.lr * self.settings.drop_factor**self.state.drops

    def has_steps_left(self) -> bool:
        """Validates where that is due; False when the training has come to its end."""
        settings, state = self.settings, self.state
        late = settings.wall_seconds is not None and self._clock.total > settings.wall_seconds
        over = ranks.broadcast_from_main(late)
        last = state.step >= settings.steps or over  # a resume may ask for fewer
        if state.step == 0 or (state.step % settings.eval_every and not last):
            return True
        if state.validated < state.step:
            self._validate()
        plateau = self.until_plateau and state.stale >= settings.patience
        if plateau and not last and state.drops < settings.drops:
            self._drop()
            return True
        return not (last or plateau)

    def train_step(self) -> None:
        """Run one step, whole or not at all; first a checkpoint where one is due."""
        settings, step, checkpointer = self.settings, self.state.step, self.checkpointer
        with checkpointer.step(step):
            studies = self._studies_of(step)
            checkpointer.on_failure_dump(
                partial(describe_references, self.policy, studies, settings.template)
            )
            prompts = next(self._ahead)
            checkpointer.check_stop()
            losses, tokens = sft_gradients(self.policy, prompts, studies, settings)
            clipped = clip_gradients(self.policy.model.parameters(), settings.clip)
            loss, norm = read_losses(losses, clipped, step)
            lr = learning_rate(
                step, settings.steps, self.peak_lr, settings.warmup, settings.schedule
            )
            apply_step(self.optimizer, norm, lr, checkpointer.mark_dirty)
            spent = self._clock.lap("train")
            row = {"loss": loss, "lr": lr, "grad_norm": norm, "tokens": tokens}
            pace = {"seconds/train": spent, "speed/scored_tokens": tokens / spent}
            peak = max(ranks.gather(peak_memory(self.policy.device)))
            self.log.write("sft", step, {**row, **pace, "memory/peak_mib": peak / 2**20})
            self.state.step += 1
        self._bar.advance(loss=loss)

    def finish(self) -> SftResult:
        """Saves the chosen weights to `out`, with which the policy ends."""
        with self.checkpointer.interruptible(self.state.step):
            self._best.save(self.out, self.trained_as)
        self._clock.lap("train")
        return SftResult(
            self.out,
            self._best.value,
            self._best.step,
            self.state.step,
            self._clock.total,
            dict(self._clock.seconds),
            self.peak_lr,
        )

    def _validate(self) -> None:
        state = self.state
        self.sampler.step = state.step
        with self.checkpointer.interruptible(state.step):
            values = self.validate()
            self.sampler.release(self.policy)
            self.log.write("sft_val", state.step - 1, values)
        self._clock.lap("validate")
        names = self.eval.chosen_by
        value, *others = (chosen_value(values, by) for by in names)
        self._bar.show(**{names[0]: value})
        if value > state.plateau + self.settings.min_delta:
            state.plateau, state.stale = value, 0
        else:
            state.stale += 1
        state.validated = state.step
        self._best.offer(state.step, value, others)
        self._clock.lap("validate")  # it may have written a checkpoint

    def _drop(self) -> None:
        """Goes on from the best weights at a smaller rate; the moments were of another place."""
        settings = self.settings
        self._best.restore()
        self.optimizer = optimizer_of(self.policy.model, settings)
        self.state.drops, self.state.stale = self.state.drops + 1, 0


def train_sft(run: SftRun) -> SftResult:
    """Trains `run.policy` in place; keeps the checkpoint that `sft.choose` asks for.

    Stops after `sft.steps`, after `sft.wall_seconds`, or, with `until_plateau`, when
    `sft.patience` validations in a row bring less than `sft.min_delta` and no `sft.drops` is
    left. The policy ends with that checkpoint's weights.
    """
    with run.started():
        while run.has_steps_left():
            run.train_step()
    return run.finish()
