"""The optimiser steps on one batch of rollouts: one on-policy, or several with old log-probs."""

from __future__ import annotations

import math

import torch

from rrgtrain.algorithms import Algorithm, Group
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import members
from rrgtrain.algorithms.objective import Objective
from rrgtrain.engine import ranks
from rrgtrain.engine.keeper import Unkept
from rrgtrain.engine.minibatch import minibatches
from rrgtrain.engine.optim import apply_step
from rrgtrain.engine.update import accumulate_gradients, fixed_logps
from rrgtrain.errors import UserError
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Rl

# Mean |log-prob of the trainer - log-prob of the sampler| that is still rounding.
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}


def on_policy(settings: Rl, groups: int) -> bool:
    """Whether each batch gets one update: the policy is then the one that sampled, ratio 1."""
    return settings.epochs == 1 and (settings.minibatch is None or settings.minibatch >= groups)


def optimise(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    advantages: torch.Tensor | Objective,
    algorithm: Algorithm,
    settings: Rl,
    optimizer: torch.optim.Optimizer,
    lr: float,
    key: tuple[int, ...],
    keeper: Unkept,
) -> tuple[dict[str, float], int]:
    """Every update on one batch.

    Returns their metrics with "grad_norm", means over the updates, and the tokens that went
    through the model. With a single update no old log-probabilities are computed. With several,
    those of the policy that sampled and of the reference are computed once, before the first.
    `key` decides the order of the mini-batches.
    """
    objective, fixed = as_objective(advantages), None
    if not on_policy(settings, len(groups)):
        fixed = fixed_logps(policy, reference, groups, objective, algorithm.loss, settings)
    rows, tokens = [], 0
    for epoch in range(settings.epochs):
        parts = minibatches(groups, objective, fixed, settings.minibatch, (*key, epoch))
        for part, asked, known in parts:
            update = accumulate_gradients(
                policy, reference, part, asked, algorithm.loss, settings, fixed=known
            )
            parameters = policy.model.parameters()
            norm = apply_step(optimizer, parameters, lr, settings.clip, keeper.changing)
            rows.append({**update.metrics, "grad_norm": norm})
            tokens += update.tokens
    return (rows[0] if len(rows) == 1 else _together(rows)), tokens


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


def check_ratio(policy: Policy, sampled: list[Group], algorithm: Algorithm, settings: Rl) -> float:
    """That a single update may take every ratio as 1, asked once in a run.

    The log-probabilities of the sampled members are computed in the packed forward of the update
    (without its dropout), and compared with those they were drawn with. Returns the mean absolute
    difference, NaN where nothing can be compared (nucleus sampling, or an engine that reports no
    log-probabilities). Raises UserError where it is more than rounding: the policy that learns is
    then not the one that sampled.
    """
    told = [m.sampler_logps for m in members(sampled)]
    own = [g.rank == ranks.rank() or ranks.size() == 1 for g in sampled for _ in g.members]
    if settings.top_p < 1.0 or any(logps is None for logps in told):
        return math.nan
    everything = torch.ones(len(told))
    found = fixed_logps(policy, None, sampled, everything, algorithm.loss, settings)
    sampler = torch.cat([logps for logps in told if logps is not None])
    computed = torch.tensor(own).repeat_interleave(
        torch.tensor([len(t) for t in told if t is not None])
    )
    apart = (found.old - sampler).abs()[computed]
    everywhere = ranks.summed({"sum": float(apart.sum()), "tokens": len(apart)})
    gap = everywhere["sum"] / everywhere["tokens"]
    limit = ROUNDING.get(policy.dtype, ROUNDING[torch.bfloat16])
    if not gap <= limit:
        raise UserError(
            f"log-probabilities differ by {gap:.3g} on average between rollout and update, more "
            f"than rounding ({limit:g}), so a ratio of 1 would be wrong: give both the same "
            "weights and dtype, or set rl.epochs=2 for old log-probabilities"
        )
    return gap
