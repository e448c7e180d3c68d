"""DiTPO's gradient weights for groups: which labeller, which findings, which characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rrgclinical.chexbert import CheXbertLabeller, token_saliency_weights
from rrgclinical.chexbert.distilled import distil
from rrgclinical.common.progress import Bar, progress
from rrgdata.study import Study
from rrgpolicy.model.codec import ReportCodec
from rrgpolicy.ranks import ranks
from rrgtrain.algorithms.base import Context
from rrgtrain.algorithms.group import Group, members, token_offsets
from rrgtrain.errors import UserError
from rrgtrain.rewards.labellers import open_labeller
from rrgtrain.schema import RewardSettings, TokenWeightSettings

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
        self._truth: dict[str, np.ndarray] = {}
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
        if self._against == "labels":
            bare = next((study.id for study in studies if study.labels is None), None)
            if bare is not None:
                raise UserError(
                    f"token_weights.kind={self._settings.kind} weighs tokens by the positive "
                    f"labels, but study {bare} has none; use token_weights.kind=tfidf"
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
        found = token_saliency_weights(
            self._network,
            [flat[s].text for s in chosen],
            self._labels([studies[s] for s in chosen]),
            torch.tensor([s for own in spans for s in own], dtype=torch.int32).reshape(-1, 2),
            torch.tensor([0, *map(len, spans)]).cumsum(0),
            beta=self._settings.beta,
            uncertain=self._settings.uncertain,
        )
        weights = torch.ones(int(offsets[-1]))
        parts = found.weights.float().cpu().split([len(own) for own in spans])
        for s, part in zip(chosen, parts, strict=True):
            weights[int(offsets[s]) : int(offsets[s + 1])] = part
        return weights

    def _labels(self, studies: Sequence[Study]) -> np.ndarray:
        """[R, 14] class ids of the references, or the studies' own; each study is read once."""
        unknown = {s.id: s for s in studies if s.id not in self._truth}
        if unknown and self._against == "labels":
            for study in unknown.values():
                self._truth[study.id] = np.asarray(study.labels, dtype=np.int8)
        elif unknown:
            read = self._reader.label([s.report or "" for s in unknown.values()], keep=True)
            self._truth.update(zip(unknown, read, strict=True))
        return np.stack([self._truth[s.id] for s in studies])
