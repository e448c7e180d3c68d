"""Update the policy on a batch: one optimiser step, or several on mini-batches."""

from __future__ import annotations

from rrgtrain.schema import RlSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.gradients import accumulate_gradients, with_rollout_logps
from rrgtrain.train.loss_metrics import mean_of_updates
from rrgtrain.train.optim import apply_step, clip_gradients
from rrgtrain.train.rl_run import RlRun


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
