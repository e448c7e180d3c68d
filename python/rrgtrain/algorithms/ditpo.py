"""DiTPO (DEER): each token's advantage is its report's, times how much the token says.

A_t = A·w_t (eq. 6), for advantages of either sign. w is 1 + α·tf·idf over the reports of the
group (eqs. 7 and 8), or 1 + β·s with s the saliency of the token for a CheXbert that reads the
reference's positive findings in the report (eqs. 9 to 12), or, `token_weights.kind=both`, 1 plus
both terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from rrgclinical.chexbert import CheXbertLabeller, token_saliency_weights
from rrgclinical.chexbert.distilled import distil
from rrgclinical.common.progress import Bar, progress
from rrgdata.study import Study
from rrgkern import tfidf_weights
from rrgpolicy.model.codec import ReportCodec
from rrgpolicy.ranks import ranks
from rrgtrain.algorithms.base import Advantages, Algorithm, Context, as_objective
from rrgtrain.algorithms.group import Group, Member, Objective, members, token_offsets
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import truth_of
from rrgtrain.rewards.term_models import open_labeller
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

    advantages = weighed(inner.advantages, terms, settings.bound)
    return replace(inner, advantages=advantages, check=check, prepare=prepare)


def weighed(inner: Advantages, terms: list[Weigh], bound: float | None) -> Advantages:
    """Weigh each token of the objective of `inner`.

    Its weight is 1 plus what each term adds to 1, at most `bound`."""

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
        weight = weight.clamp(max=math.inf if bound is None else bound)
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


DISTILLED = "distilled"


class Saliency:
    """Callable on groups -> [N] fp32, 1 + β·s of every token (DiTPO eq. 12).

    `prepare` must have been called. Members that are not scored get 1. Of several ranks, each reads
    the groups that it has drawn, and all get the weights of all.
    """

    def __init__(self, settings: TokenWeightSettings, reward: RewardSettings, seed: int) -> None:
        self._settings, self._seed, self._against = settings, seed, reward.against
        name = settings.labeller or reward.labeller
        self._network: CheXbertLabeller | None = None
        self._codec: ReportCodec | None = None
        if name == DISTILLED:
            self._reader = open_labeller(reward)
            return
        reader = open_labeller(reward, name)
        if not isinstance(reader.labeller, CheXbertLabeller):
            raise UserError(
                f"token_weights.labeller={name} has no gradient to weigh tokens by; use chexbert, "
                f"{DISTILLED} (a small one, learned from the training reports), or "
                "token_weights.kind=tfidf"
            )
        self._reader, self._network = reader, reader.labeller

    def check(self, studies: Sequence[Study]) -> None:
        """UserError for studies without the labels, or the reports, that the weights need."""
        labels = self._against == "labels"
        bare = (s.id for s in studies if (s.labels if labels else s.report) is None)
        if (study := next(bare, None)) is not None:
            truth = "positive labels" if labels else "findings of the report"
            raise UserError(
                f"token_weights.kind={self._settings.kind} weighs tokens by the {truth}, but "
                f"study {study} has none; use token_weights.kind=tfidf"
            )
        if self._network is None and not any(study.report for study in studies):
            raise UserError(
                f"token_weights.labeller={DISTILLED} learns from training reports, and this data "
                "has none; use token_weights.kind=tfidf"
            )

    def prepare(self, context: Context) -> None:
        """Takes the codec, and learns the distilled labeller where the recipe asks for one.

        Of several ranks, rank 0 learns it for all.
        """
        self._codec = context.codec
        if self._network is None:
            network = self._distilled(context) if ranks.is_main() else None
            self._network = ranks.broadcast_from_main(network)

    def _distilled(self, context: Context) -> CheXbertLabeller:
        reports = [study.report for study in context.studies if study.report]
        steps = self._settings.distil_steps
        bar: Bar[int] = progress(steps, "learning to weigh tokens")
        with bar:
            return distil(self._reader, reports, seed=self._seed, steps=steps, each=bar.advance)

    def __call__(self, groups: list[Group]) -> torch.Tensor:
        if ranks.size() == 1:
            return self._weights(groups)
        own = self._weights([group for group in groups if group.rank == ranks.rank()])
        places = [0] * ranks.size()
        parts = ranks.gather(own)
        whole = []
        for group in groups:
            begin = places[group.rank]
            places[group.rank] = end = begin + sum(len(member.ids) for member in group.members)
            whole.append(parts[group.rank][begin:end])
        return torch.cat(whole)

    def _weights(self, groups: list[Group]) -> torch.Tensor:
        if self._network is None or self._codec is None:
            raise ValueError("saliency is asked for weights before prepare(context) was called")
        offsets, flat = token_offsets(groups), members(groups)
        studies = [group.study for group in groups for _ in group.members]
        chosen = [s for s, member in enumerate(flat) if member.scored]
        if not chosen:
            return torch.ones(int(offsets[-1]))
        spans = [self._codec.char_spans(flat[s].ids) for s in chosen]
        saliency = token_saliency_weights(
            self._network,
            [flat[s].text for s in chosen],
            truth_of([studies[s] for s in chosen], self._reader, self._against),
            torch.tensor([s for own in spans for s in own], dtype=torch.int32).reshape(-1, 2),
            torch.tensor([0, *map(len, spans)]).cumsum(0),
            beta=self._settings.beta,
            uncertain=self._settings.uncertain,
        )
        weights = torch.ones(int(offsets[-1]))
        parts = saliency.weights.float().cpu().split([len(own) for own in spans])
        for s, part in zip(chosen, parts, strict=True):
            weights[int(offsets[s]) : int(offsets[s + 1])] = part
        return weights
