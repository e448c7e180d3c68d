"""DiTPO (DEER): each token's advantage is its report's, times how much the token says.

A_t = A·w_t (eq. 6), for advantages of either sign. w is 1 + α·tf·idf over the reports of the
group (eqs. 7 and 8), or 1 + β·s with s the saliency of the token for a CheXbert that reads the
reference's positive findings in the report (eqs. 9 to 12), or, `token_weights.kind=both`, 1 plus
both terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from rrgdata.study import Study
from rrgkern import tfidf_weights
from rrgtrain.algorithms.base import Advantages, Algorithm, Context, as_objective
from rrgtrain.algorithms.group import Group, Member, members, token_offsets
from rrgtrain.algorithms.objective import Objective
from rrgtrain.algorithms.saliency import Saliency
from rrgtrain.schema import RewardSettings, TokenWeightSettings

# groups -> [N] fp32, the weight of every token of every member
Weigh = Callable[[list[Group]], torch.Tensor]


def build(
    settings: TokenWeightSettings, reward: RewardSettings, seed: int, inner: Algorithm
) -> Algorithm:
    """DiTPO over `inner`; UserError where the labeller that shall give gradients cannot be had."""
    terms: list[Weigh] = []
    prepare, check = inner.prepare, inner.check
    if settings.kind in ("tfidf", "both"):
        terms.append(lambda groups: tfidf(groups, settings.alpha))
    if settings.kind in ("saliency", "both"):
        saliency = Saliency(settings, reward, seed)
        terms.append(saliency)

        def prepare(context: Context) -> None:
            inner.prepare(context)
            saliency.prepare(context)

        def check(studies: Sequence[Study]) -> None:
            inner.check(studies)
            saliency.check(studies)

    return replace(inner, advantages=weighed(inner.advantages, terms), check=check, prepare=prepare)


def weighed(inner: Advantages, terms: list[Weigh]) -> Advantages:
    """Weigh each token of the objective of `inner`.

    Its weight is 1 plus what each term adds to 1."""

    def advantages(groups: list[Group], rewards: torch.Tensor) -> Objective:
        objective = as_objective(inner(groups, rewards))
        weights = [term(groups) for term in terms]
        weight = sum(weights[1:], weights[0]) - (len(weights) - 1)
        metrics = {
            **objective.metrics,
            "token_weight/mean": float(weight.mean()),
            "token_weight/max": float(weight.max()),
            "token_weight/above_1": float((weight > 1).float().mean()),
        }
        weight = weight if objective.weight is None else objective.weight * weight
        return replace(objective, weight=weight, metrics=metrics)

    return advantages


def tfidf(groups: list[Group], alpha: float) -> torch.Tensor:
    """Compute TF-IDF weights [N] over the scored reports of each group.

    1 for an end of turn."""
    offsets, flat = token_offsets(groups).tolist(), members(groups)
    weights = torch.ones(offsets[-1])
    chosen = [s for s, member in enumerate(flat) if member.scored]
    bodies = [body(flat[s]) for s in chosen]
    lengths = torch.tensor([0, *map(len, bodies)])
    sizes = torch.tensor([0, *(sum(m.scored for m in g.members) for g in groups)])
    found = tfidf_weights(
        torch.cat([torch.zeros(0, dtype=torch.int64), *bodies]),
        lengths.cumsum(0),
        sizes.cumsum(0),
        alpha=alpha,
    )
    for s, part in zip(chosen, found.split(lengths[1:].tolist()), strict=True):
        weights[offsets[s] : offsets[s] + len(part)] = part
    return weights


def body(member: Member) -> torch.Tensor:
    """The ids of the report itself, without the end of turn that closes it."""
    return member.ids[: len(member.ids) - member.finished]
