"""Reinforcement learning: sample, complete the groups, reward, weigh, update.

The loop of every algorithm; the `RlRun` is what it works with. For members i, their tokens t, and
r = exp(logp - old), the loss is `run.algorithm.loss`, for EditGRPO

    L = - sum_i scale_i sum_t min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)
        + rl.beta sum_i scale_i sum_t KL(policy, reference)

with A of `run.algorithm.advantages`; OraPO adds its oracle's preference loss.
"""

from __future__ import annotations

from functools import partial

from rrgtrain.train.batch import Batch
from rrgtrain.train.optim import learning_rate
from rrgtrain.train.resample import until_differing
from rrgtrain.train.rl_run import RlResult, RlRun
from rrgtrain.train.sample import sample_groups
from rrgtrain.train.update import update


def train_rl(run: RlRun) -> RlResult:
    """Trains `run.policy` in place for `rl.steps` steps; keeps the best by `eval.best_by`.

    With one update per batch the policy is the one that sampled, and every ratio is exactly 1;
    see `update` for several. At every step the sampler's log-probabilities are compared with the
    trainer's.
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
    run.log_step(step, batch, {**metrics, "lr": lr}, tokens)


def _draw(run: RlRun, step: int, again: int = 0) -> Batch:
    """Sample, complete and score the groups of a step; `again` counts its further prompts."""
    indices = run.indices(step, again)
    with run.phase("rollout"):
        references = run.read_references(indices)
        prompts = run.own_prompts(indices) if again else next(run.prompts_ahead)
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
