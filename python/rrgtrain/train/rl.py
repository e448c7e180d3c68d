"""Reinforcement learning: sample, complete the groups, reward, weigh, update.

The loop of every algorithm; the `RlRun` is what it works with. For members i, their tokens t, and
r = exp(logp - old), the loss is `run.algorithm.loss`, for EditGRPO

    L = - sum_i scale_i sum_t min(r A, clip(r, 1 - eps_low, 1 + eps_high) A)
        + rl.beta sum_i scale_i sum_t KL(policy, reference)

with A of `run.algorithm.advantages`; OraPO adds its oracle's preference loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import torch

from rrgkern import philox_seed
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout import Rollout, SamplingRequest
from rrgtrain.algorithms import Group, Member
from rrgtrain.errors import NotFinite
from rrgtrain.schema import RlSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.gradients import accumulate_gradients, with_rollout_logps
from rrgtrain.train.optim import apply_step, clip_gradients, learning_rate
from rrgtrain.train.resample import until_differing
from rrgtrain.train.rl_run import RlResult, RlRun
from rrgtrain.train.step_log import mean_of_updates


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
    run.log_step(step, batch, {**metrics, **run.sampler.compile_row(), "lr": lr}, tokens)


def _draw(run: RlRun, step: int, again: int = 0) -> Batch:
    """Sample, complete and score the groups of a step; `again` counts its further prompts."""
    indices = run.indices(step, again)
    with run.phase("rollout"):
        references = run.read_references(indices)
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
    reference are computed once, before the first. `key` decides the order of the mini-batches.
    Raises UserError, before any weight changes, where the gap is too wide.
    """
    settings, loss = run.settings, run.algorithm.loss
    mark_dirty = run.checkpointer.mark_dirty
    # with `rl.resample` it was kept until no further prompts are drawn
    run.sampler.release(run.policy)
    if not is_on_policy(settings, len(batch.groups)):
        batch = with_rollout_logps(run.policy, run.reference, batch, loss, settings)
    rows, tokens, gap = [], 0, None
    for epoch in range(settings.epochs):
        for part in batch.mini_batches(settings.minibatch, settings, (*key, epoch)):
            compare = gap is None and run.watch.compares_updates
            accumulated = accumulate_gradients(
                run.policy, run.reference, part, loss, settings, read_logps=compare
            )
            clipped = clip_gradients(run.policy.model.parameters(), settings.clip)
            gradients = accumulated.read(clipped)  # all numbers of this optimiser step at once
            if gap is None:
                gap = run.watch(batch, gradients.computed)
            norm = apply_step(run.optimizer, gradients.norm, lr, mark_dirty)
            rows.append({**gradients.metrics, "grad_norm": norm})
            tokens += gradients.tokens
    return {**mean_of_updates(rows), **(gap or {})}, tokens


def sample_groups(
    run: RlRun, indices: Sequence[int], prompts: list[EncodedPrompt], step: int, again: int = 0
) -> list[Group]:
    """Groups of `algorithm.sampled` members for the studies `indices`, each from its own seed.

    Of several ranks, each draws its share of the batch; `prompts` are those of its share. `again`
    counts the further prompts of a step, see `resample`. Raises NotFinite where the policy's
    log-probabilities are not finite.
    """
    settings, sampler = run.settings, run.sampler
    own = ranks.shard(indices)
    request = SamplingRequest(
        prompts,
        group=run.algorithm.sampled,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
        seeds=ranks.shard(member_seeds(run, indices, step, again)),
    )
    with sampler.weights(run.policy) as draw:
        rollouts = draw(request)
    if not settings.resample:  # further prompts are drawn from the same weights
        sampler.release(run.policy)
    run.policy.model.train()
    if not all(torch.isfinite(r.logps).all() for group in rollouts for r in group):
        cause = "its weights have blown up; lower rl.lr"
        if step == 0:
            cause = f"the checkpoint {run.start.path} is broken; name another one"
        raise NotFinite(f"the policy gives no finite log-probability at step {step}: {cause}")
    return [
        Group(index, run.studies[index], prompt, tuple(_member(run, r) for r in group))
        for index, prompt, group in zip(own, prompts, rollouts, strict=True)
    ]


def member_seeds(run: RlRun, indices: Sequence[int], step: int, again: int = 0) -> list[list[int]]:
    """A seed for every member, by run, step, study and place.

    A study that comes twice in a batch (few studies, the border of an epoch) draws new reports. An
    edit has a seed of its own kind: sampling and editing never share a draw.
    """
    turns: Counter[int] = Counter()
    seeds = []
    count = run.algorithm.sampled
    step += again * run.settings.steps  # past the last step: draws of its own
    for i in indices:
        places = range(turns[i] * count, (turns[i] + 1) * count)
        seeds.append([philox_seed(~run.seed, step, i, k) for k in places])
        turns[i] += 1
    return seeds


def _member(run: RlRun, rollout: Rollout) -> Member:
    corrected = run.sampler.own_kernels and run.rollout.correction != "none"
    return Member(
        rollout.ids,
        run.policy.codec.decode(rollout.ids),
        finished=rollout.finished,
        sampler_logps=rollout.logps,
        scored=rollout.finished or run.settings.truncated == "score",
        corrected=corrected,
    )
