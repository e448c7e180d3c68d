"""The optimiser steps on one batch of rollouts: one on-policy, or several with old log-probs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rrgtrain.algorithms import Algorithm, Group
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.objective import Objective
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import RlSettings
from rrgtrain.state.checkpointer import NullCheckpointer
from rrgtrain.train.gap import SamplerWatch
from rrgtrain.train.minibatch import minibatches
from rrgtrain.train.optim import apply_step
from rrgtrain.train.update import accumulate_gradients, fixed_logps


@dataclass(frozen=True)
class Learner:
    """What stays the same from batch to batch: the policy, what trains it, and who looks on."""

    policy: Policy
    reference: Policy | None
    algorithm: Algorithm
    settings: RlSettings
    optimizer: torch.optim.Optimizer
    checkpointer: NullCheckpointer
    watch: SamplerWatch


def on_policy(settings: RlSettings, groups: int) -> bool:
    """Whether each batch gets one update: the policy is then the one that sampled, ratio 1."""
    return settings.epochs == 1 and (settings.minibatch is None or settings.minibatch >= groups)


def optimise(
    learner: Learner,
    groups: list[Group],
    advantages: torch.Tensor | Objective,
    lr: float,
    key: tuple[int, ...],
) -> tuple[dict[str, float], int]:
    """Every update on one batch.

    Returns their metrics with "grad_norm", means over the updates, the gap between sampler and
    trainer before the first, and the tokens that went through the model. With a single update no
    old log-probabilities are computed. With several, those of the policy that sampled and of the
    reference are computed once, before the first. `key` decides the order of the mini-batches.
    Raises UserError, before any weight changes, where the gap is too wide.
    """
    policy, reference, settings = learner.policy, learner.reference, learner.settings
    objective, fixed, loss = as_objective(advantages), None, learner.algorithm.loss
    if not on_policy(settings, len(groups)):
        fixed = fixed_logps(policy, reference, groups, objective, loss, settings)
    rows, tokens, gap = [], 0, None
    for epoch in range(settings.epochs):
        parts = minibatches(groups, objective, fixed, settings.minibatch, (*key, epoch))
        for part, asked, known in parts:
            update = accumulate_gradients(
                policy, reference, part, asked, loss, settings, fixed=known
            )
            if gap is None:
                gap = learner.watch(groups, update.seen)
            parameters = policy.model.parameters()
            mark_dirty = learner.checkpointer.mark_dirty
            norm = apply_step(learner.optimizer, parameters, lr, settings.clip, mark_dirty)
            rows.append({**update.metrics, "grad_norm": norm})
            tokens += update.tokens
    return {**(rows[0] if len(rows) == 1 else _together(rows)), **(gap or {})}, tokens


def _together(rows: list[dict[str, float]]) -> dict[str, float]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    together = {}
    for name in names:
        values = [row[name] for row in rows if name in row]
        if name == "ratio_max":
            together[name] = max(values)
        elif name in ("scored_tokens", "active_tokens"):
            together[name] = sum(values)
        else:
            together[name] = sum(values) / len(values)
    return together
