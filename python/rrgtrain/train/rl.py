"""Reinforcement learning: sample, complete the groups, reward, weigh, update.

The loop of every algorithm; the `RlRun` is what it works with. For members i, their tokens t, and
r = exp(logp - old), the loss is `run.algorithm.loss`, for EditGRPO

    L = - sum_i scale_i sum_t min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)
        + rl.beta sum_i scale_i sum_t KL(policy, reference)

with A of `run.algorithm.advantages`; OraPO adds its oracle's preference loss.
"""

from __future__ import annotations

from functools import partial

from rrgpolicy.ranks import ranks
from rrgtrain.schema import RlSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.gradients import accumulate_gradients, with_rollout_logps
from rrgtrain.train.optim import apply_step, clip_gradients, learning_rate
from rrgtrain.train.resample import until_differing
from rrgtrain.train.rl_run import RlResult, RlRun
from rrgtrain.train.sample import arrive, sample_groups, take_ahead, with_old_of_sampler
from rrgtrain.train.step_log import mean_of_updates


def train_rl(run: RlRun) -> RlResult:
    """Trains `run.policy` in place for `rl.steps` steps; keeps the best by `eval.best_by`.

    With one update per batch the policy is the one that sampled, and every ratio is exactly 1;
    see `update` for several, and `sample` for batches that the policy before the last update drew
    (`rl.ahead=1`). At every step the sampler's log-probabilities are compared with the trainer's.
    """
    with run.started():
        while run.has_steps_left():  # validates where that is due
            with run.step() as step:  # a checkpoint first, where one is due
                _train_step(run, step)
    return run.finish()


def _train_step(run: RlRun, step: int) -> None:
    """One step. A function, so that its images and reports are gone before the next begins."""
    settings, seed = run.settings, run.seed
    if settings.resample:
        batch = until_differing(partial(_draw, run, step), settings.prompts, settings.resample)
    else:
        batch = _draw(run, step)
    with run.phase("reward"):
        batch = run.with_objective(batch, step)
    with run.phase("update"):
        lr = learning_rate(step, settings.steps, settings.lr, settings.warmup, settings.schedule)
        metrics, tokens = update(run, batch, lr, (seed, step))
    run.log_step(step, batch, {**metrics, **run.sampler.compile_row(), "lr": lr}, tokens)


def _draw(run: RlRun, step: int, again: int = 0) -> Batch:
    """Sample, complete and score the groups of a step; `again` counts its further prompts."""
    indices = run.indices(step, again)
    with run.phase("rollout"):
        references = run.read_references(indices)
        if run.settings.ahead:
            sampled = take_ahead(run, step)  # and the next ones are begun
        else:
            further = [run.studies[i] for i in ranks.shard(indices)] if again else []
            prompts = run.prompts.batch(further) if again else next(run.prompts_ahead)
            run.checkpointer.check_stop()
            sampled = sample_groups(run, indices, prompts, step, again)
    with run.phase("reward"):
        references.result()
    with run.phase("edit"):
        groups, counts = run.complete(sampled, step)
    with run.phase("reward"):
        groups, scores, notes = run.score(groups, step)
        compared = run.compared(step)
        return Batch(groups, sampled, counts, scores, notes, compared).of_all_ranks()


def is_on_policy(settings: RlSettings, groups: int) -> bool:
    """Tell whether each batch gets one update, by the policy that sampled: ratio 1."""
    return settings.epochs == 1 and (settings.minibatch is None or settings.minibatch >= groups)


def update(
    run: RlRun, batch: Batch, lr: float, key: tuple[int, ...]
) -> tuple[dict[str, float], int]:
    """Every optimiser step on one batch.

    Returns their metrics with "grad_norm", means over the steps, the gap between sampler and
    trainer before the first, and the tokens that went through the model. With a single step no
    old log-probabilities are computed. With several, those of the policy that sampled and of the
    reference are computed once, before the first. One step ahead `old` is the sampler's, and the
    gap that of the next batch. `key` decides the order of the mini-batches.
    Raises UserError, before any weight changes, where the gap is too wide.
    """
    settings, loss = run.settings, run.algorithm.loss
    mark_dirty = run.checkpointer.mark_dirty
    # with `rl.resample` it was kept until no further prompts are drawn
    run.sampler.release(run.policy)
    if not is_on_policy(settings, len(batch.groups)):
        batch = with_rollout_logps(run.policy, run.reference, batch, loss, settings)
    # without a ratio the sampler correction weighs the older weights' reports
    if settings.ahead and settings.surrogate != "reinforce":
        batch = with_old_of_sampler(batch)
    rows, tokens, gap = [], 0, None
    for epoch in range(settings.epochs):
        for part in batch.mini_batches(settings.minibatch, settings, (*key, epoch)):
            compare = gap is None and not settings.ahead and run.watch.compares_updates
            accumulated = accumulate_gradients(
                run.policy, run.reference, part, loss, settings, read_logps=compare
            )
            clipped = clip_gradients(run.policy.model.parameters(), settings.clip)
            gradients = accumulated.read(clipped)  # all numbers of this optimiser step at once
            if gap is None:
                ahead = bool(settings.ahead)
                gap = arrive(run) if ahead else run.watch(batch, gradients.computed)
            norm = apply_step(run.optimizer, gradients.norm, lr, mark_dirty)
            rows.append({**gradients.metrics, "grad_norm": norm})
            tokens += gradients.tokens
    return {**mean_of_updates(rows), **(gap or {})}, tokens
