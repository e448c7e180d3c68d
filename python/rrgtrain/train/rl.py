"""Reinforcement learning: roll out, complete the groups, reward, weigh, update."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rrgkern import philox_seed
from rrgtrain.algorithms import Algorithm, Context, Group, Member
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import members
from rrgtrain.data.study import Study
from rrgtrain.dist import ranks, sharding
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.log.record import Batch, Recorder
from rrgtrain.log.speed import Speed
from rrgtrain.policy.policy import Policy
from rrgtrain.rewards import RewardService
from rrgtrain.rollout import RolloutEngine, SamplingRequest, TransformersEngine
from rrgtrain.schema import Recipe
from rrgtrain.state.checkpointer import NullCheckpointer, State
from rrgtrain.train.batch_metrics import reward_rows, spread, surprise, unfinished, zero_variance
from rrgtrain.train.best import Best
from rrgtrain.train.describe import describe_groups
from rrgtrain.train.encode import PromptCache
from rrgtrain.train.evaluate import chosen_value
from rrgtrain.train.exchange import Rollouts, of_all_ranks
from rrgtrain.train.gap import SamplerWatch
from rrgtrain.train.optim import learning_rate, optimizer_of
from rrgtrain.train.order import batch_indices
from rrgtrain.train.reference import named_reference
from rrgtrain.train.steps import Learner, optimise
from rrgtrain.util.progress import Bar, progress
from rrgtrain.util.stopwatch import Stopwatch

Validate = Callable[[], dict[str, float]]
PHASES = ("rollout", "edit", "reward", "update", "validate")


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


def sample_groups(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    indices: Sequence[int],
    algorithm: Algorithm,
    recipe: Recipe,
    step: int,
    engine: RolloutEngine,
) -> list[Group]:
    """Groups of `algorithm.sampled` members drawn by `engine`, each from its own seed; of several
    ranks, each draws its share of the batch.

    Raises NotFinite where the policy's log-probabilities are not finite.
    """
    settings = recipe.rl
    own = ranks.shard(indices)
    encoded = [prompts(studies[i]) for i in own]
    # A study that comes twice in a batch (few studies, the border of an epoch) draws new reports.
    turns: Counter[int] = Counter()
    seeds = []
    for i in indices:
        places = range(turns[i] * algorithm.sampled, (turns[i] + 1) * algorithm.sampled)
        # An edit has a seed of its own kind: sampling and editing never share a draw.
        seeds.append([philox_seed(~recipe.seed, step, i, k) for k in places])
        turns[i] += 1
    seeds = ranks.shard(seeds)
    policy.model.eval()
    with torch.no_grad(), sharding.summon_full(policy):
        pushed = ranks.broadcast_from_main(engine.update(policy, step) if ranks.is_main() else None)
        if not ranks.is_main():
            engine.follow(pushed)
        request = SamplingRequest(
            encoded,
            group=algorithm.sampled,
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            seeds=seeds,
        )
        rollouts = engine.generate(policy, request)
        engine.release()
    policy.model.train()
    corrected = engine.own_kernels and recipe.rollout.correction != "none"
    if not all(torch.isfinite(r.logps).all() for group in rollouts for r in group):
        cause = "its weights have blown up; lower rl.lr"
        if step == 0:
            cause = f"the checkpoint {recipe.policy.path} is broken; name another one"
        raise NotFinite(f"the policy gives no finite log-probability at step {step}: {cause}")
    return [
        Group(
            index,
            studies[index],
            prompt,
            tuple(
                Member(
                    r.ids,
                    policy.codec.decode(r.ids),
                    "sampled",
                    r.finished,
                    r.logps,
                    corrected=corrected,
                )
                for r in group
            ),
        )
        for index, prompt, group in zip(own, encoded, rollouts, strict=True)
    ]


def run_rl(
    policy: Policy,
    prompts: PromptCache,
    studies: Sequence[Study],
    recipe: Recipe,
    algorithm: Algorithm,
    rewards: RewardService,
    validate: Validate,
    out: Path,
    log: RunLog,
    *,
    record: Recorder | None = None,
    checkpointer: NullCheckpointer | None = None,
    engine: RolloutEngine | None = None,
) -> RlResult:
    """Trains `policy` in place for `rl.steps` steps; keeps the best by `eval.best_by` in `out`.

    With one update per batch of rollouts the policy is the one that sampled, and every ratio is
    exactly 1; see `steps` for several updates. At every step the sampler's log-probabilities are
    compared with the trainer's. `record` sees every batch before its update.
    `checkpointer` makes it resumable. `engine` samples; without one, transformers.
    """
    settings, checkpointer, by = recipe.rl, checkpointer or NullCheckpointer(), recipe.eval.best_by
    engine = engine or TransformersEngine()
    require_reports(algorithm, studies)
    algorithm.prepare(Context(policy.codec, studies))
    reference = None
    if settings.beta > 0 or algorithm.needs_reference:
        # `out` lies among the checkpoints of the run
        reference = named_reference(policy, recipe, out.parent.parent)
    sharding.setup(recipe.scale.mode, policy, reference)
    optimizer = optimizer_of(policy.model, settings)
    watch = SamplerWatch(policy, algorithm, recipe)
    learner = Learner(policy, reference, algorithm, settings, optimizer, checkpointer, watch)
    best, clock, at, speed = Best(policy, by), Stopwatch(PHASES), _Place(), Speed(policy)

    def state() -> State:
        return {
            **dataclasses.asdict(at),
            "seconds": dict(clock.seconds),
            "optimizer": optimizer.state_dict(),
            "best": best.state_dict(),
            "algorithm": algorithm.state_dict(),
            "record": record.state_dict() if record else None,
        }

    if (saved := checkpointer.begin(algorithm.name, state)) is not None:
        at = _Place(**{f.name: saved[f.name] for f in dataclasses.fields(_Place)})
        sharding.load_optimizer(optimizer, saved["optimizer"])
        best.load_state_dict(saved["best"])
        algorithm.load_state_dict(saved["algorithm"])
        if record:
            record.load_state_dict(saved["record"])
        clock.load(saved["seconds"])
        saved = None  # as large as weights and optimiser together
    bar: Bar[int] = progress(settings.steps, algorithm.name, done=at.step)

    def validate_if_due() -> None:
        due = at.step % settings.eval_every == 0 or at.step == settings.steps
        if not due or at.validated == at.step:
            return
        with checkpointer.interruptible(at.step):
            values = validate()
            log.write(f"{algorithm.name}_val", at.step - 1, values)
        clock.lap("validate")
        value = chosen_value(values, by)
        best.offer(at.step, value)
        bar.show(**{by: value})
        at.validated = at.step

    def train(step: int) -> float:
        """One step; returns the mean reward."""
        speed.begin()
        spent: dict[str, float] = {}

        def lap(phase: str) -> None:
            spent[phase] = spent.get(phase, 0.0) + clock.lap(phase)

        before = rewards.statistics()
        indices = batch_indices(len(studies), settings.prompts, step, recipe.seed)
        ahead = rewards.prefetch([studies[i] for i in ranks.shard(indices)])
        sampled = sample_groups(policy, prompts, studies, indices, algorithm, recipe, step, engine)
        lap("rollout")
        ahead.result()
        lap("reward")
        own = Rollouts(sampled)
        if sampled:
            groups, counts = algorithm.complete(sampled, step, policy.codec.reencode_from)
            checkpointer.on_failure_dump(partial(describe_groups, groups))
            lap("edit")
            flat = [(group.study, m) for group in groups for m in group.members if m.competes]
            texts, written_for = [m.text for _, m in flat], [study for study, _ in flat]
            given = rewards(texts, written_for, step / settings.steps)
            noted = getattr(given, "notes", {})
            own = Rollouts(sampled, groups, counts, given, noted)
        everything = of_all_ranks(own)
        sampled, groups, scores = everything.sampled, everything.groups, everything.scores
        total = spread(groups, scores["total"])
        if not np.isfinite(scores["total"]).all():
            raise NotFinite(f"a reward of step {step} is not finite; look at its terms")
        past = algorithm.state_dict() if record is not None else {}
        advantages = as_objective(algorithm.advantages(groups, total))
        lap("reward")
        checkpointer.on_failure_dump(partial(describe_groups, groups, total, advantages))
        if record is not None:
            done, codec, notes = step / settings.steps, policy.codec, everything.notes
            record(Batch(step, done, groups, scores, total, advantages, past, codec, notes))
        lr = learning_rate(step, settings.steps, settings.lr, settings.warmup, settings.schedule)
        update, trained = optimise(learner, groups, advantages, lr, (recipe.seed, step))
        lap("update")

        zero = zero_variance(groups, total)
        at.rollouts += len(members(sampled))
        at.flat_groups, at.all_groups = at.flat_groups + zero, at.all_groups + len(groups)
        for name, value in everything.counts.items():
            at.edits[name] = at.edits.get(name, 0.0) + value
        log.write(
            algorithm.name,
            step,
            {
                **reward_rows(groups, scores),
                **everything.counts,
                **update,
                "zero_variance": zero / len(groups),
                **surprise(sampled),
                "unfinished": unfinished(groups),
                "lr": lr,
                **speed.row(
                    spent,
                    generated=sum(len(m.ids) for m in members(sampled)),
                    trained=trained,
                    scored=int(update["scored_tokens"]),
                    reference=reference is not None,
                ),
                **rewards.since(before),
            },
        )
        return float(scores["total"].mean())

    with bar:
        while True:
            validate_if_due()
            if at.step == settings.steps:
                break
            with checkpointer.step(at.step):
                reward = train(at.step)
                at.step += 1
            bar.advance(reward=reward)
    best.restore()
    if reference is not None:
        reference.release()
    with checkpointer.interruptible(at.step):
        sharding.save_policy(policy, out, recipe)
    clock.lap("validate")
    return RlResult(
        out,
        best.value,
        best.step,
        settings.steps,
        clock.total,
        dict(clock.seconds),
        at.flat_groups / at.all_groups,
        at.edits,
        at.rollouts,
    )


@dataclass
class _Place:
    """Where the loop stands: steps done, the step count last validated, and what is counted."""

    step: int = 0
    validated: int = 0
    rollouts: int = 0
    flat_groups: int = 0
    all_groups: int = 0
    edits: dict[str, float] = field(default_factory=dict)


def require_reports(algorithm: Algorithm, studies: Sequence[Study]) -> None:
    """UserError where the algorithm needs reference reports and a study has none."""
    bare = next((study.id for study in studies if not study.report), None)
    if algorithm.needs_reports and bare is not None:
        raise UserError(
            f"rl.algorithm={algorithm.name} works towards reference reports, but study {bare} has "
            "none; use rl.algorithm=dr_grpo with reward.against=labels, as the recipe nih does"
        )
