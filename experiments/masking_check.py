"""The masking check of DiTPO's weights (DEER, section 4.5 and table 6).

Reports are sampled from the fine-tuned policy in groups; of each, the tenth of the tokens that
weigh most is masked, and the labels of what is left are compared with those of the whole report.
The more labels change, and the lower the F1 against the labels before, the better the weights have
found what the labels hang on.

The paper masks and judges with CheXbert, whose gradient it also weighs by. Here the labeller that
gives the reward judges; where it has no gradient, a small CheXbert that learned from it gives one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from experiments.measures import Ratios, mean_of
from rrgclinical import Labeller
from rrgclinical.chexbert import CheXbertLabeller, token_saliency_weights
from rrgclinical.chexbert.distilled import distil
from rrgclinical.common.progress import Bar, progress
from rrgclinical.labels import to_binary
from rrgdata.study import Study
from rrgkern import philox_seed
from rrgpolicy.rollout import SamplingRequest, generate
from rrgtrain.algorithms import Group, Member
from rrgtrain.algorithms.ditpo import tfidf
from rrgtrain.algorithms.group import members, token_offsets
from rrgtrain.run.session import Session

MASK = "[MASK]"
SHARE = 0.1
BATCH = 16
DRAW = 128
"""Part of the seed by which studies are drawn."""
RANDOM, TFIDF, GRADIENT = "random", "tfidf", "gradient"


def mask_top(
    text: str, spans: Sequence[tuple[int, int]], weights: np.ndarray, share: float, seed: int
) -> str:
    """Mask the `share` of a text's tokens that weigh most, at least one.

    Ties are drawn.

    `spans` [T] are the characters of each token and `weights` [T] what each weighs; a token of
    white space or of no character is neither counted nor masked. White space before a word stays.
    """
    words = [t for t, (a, b) in enumerate(spans) if text[a:b].strip()]
    if not words:
        return text
    tie = np.random.default_rng(seed).random(len(words))
    order = np.lexsort((tie, -np.asarray(weights, dtype=np.float64)[words]))
    chosen = [words[i] for i in order[: math.ceil(share * len(words))]]
    begin = len(text)
    for a, b in sorted((spans[t] for t in chosen), reverse=True):
        # A character of several bytes may belong to two tokens: it is masked once.
        b = min(b, begin)
        word = text[a:b]
        if not word.strip():
            continue
        lead = len(word) - len(word.lstrip())
        tail = len(word) - len(word.rstrip())
        text = text[: a + lead] + MASK + text[b - tail :]
        begin = a
    return text


@dataclass(frozen=True)
class Judged:
    """Hold the labels of R reports `[R, 14]` before and after masking.

    Both as 0 and 1."""

    before: np.ndarray
    after: np.ndarray

    def measures(self, group: int) -> dict[str, Ratios]:
        """`modified`, the share of reports with a changed label, and `post_f1`, micro-F1 against
        the labels before; a unit is a study with its `group` reports."""
        hit = (self.before & self.after).sum(1)
        both = self.before.sum(1) + self.after.sum(1)
        changed = (self.before != self.after).any(1)
        studies = len(hit) // group

        def per_study(values: np.ndarray) -> np.ndarray:
            return values.reshape(studies, group).sum(1).astype(np.float64)[:, None]

        return {
            "modified": mean_of(per_study(changed)[:, 0] / group),
            "post_f1": Ratios(2 * per_study(hit), per_study(both)),
        }


def judge(
    labeller: Labeller, before: Sequence[str], after: Sequence[str], group: int
) -> dict[str, Ratios]:
    """`Judged.measures` of reports before and after masking, as `labeller` reads them."""
    read = [to_binary(labeller.label(list(texts))).astype(bool) for texts in (before, after)]
    return Judged(*read).measures(group)


def masking_check(session: Session, studies: int) -> tuple[dict[str, Ratios], dict[str, int]]:
    """Measure by `<what>/<strategy>`, as `post_f1/gradient`; and count the reports.

    `rl.group` reports are sampled of each of so many training studies, as far as there are.
    """
    recipe, rewards = session.recipe, session.rewards
    train = session.split("train")
    settings = recipe.token_weights
    network = _network(session)
    groups = _sampled(session, [study for study in train if study.report], studies)
    flat = members(groups)
    texts = [member.text for member in flat]
    codec = session.policy.codec
    spans = [codec.char_spans(member.ids) for member in flat]
    references = [group.study.report or "" for group in groups for _ in group.members]
    offsets = token_offsets(groups)
    by_gradient = token_saliency_weights(
        network,
        texts,
        rewards.labeller.label(references),
        torch.tensor([s for own in spans for s in own], dtype=torch.int32).reshape(-1, 2),
        offsets,
        beta=settings.beta,
        uncertain=settings.uncertain,
    ).weights
    weights = {
        RANDOM: torch.ones(int(offsets[-1])),
        TFIDF: tfidf(groups, settings.alpha),
        GRADIENT: by_gradient,
    }
    bounds = offsets.tolist()
    measures: dict[str, Ratios] = {}
    for name, weight in weights.items():
        parts = [weight[a:b].numpy() for a, b in itertools.pairwise(bounds)]
        masked = [
            mask_top(text, own, part, SHARE, philox_seed(recipe.seed, 0, i, 0))
            for i, (text, own, part) in enumerate(zip(texts, spans, parts, strict=True))
        ]
        judged = judge(rewards.labeller, texts, masked, recipe.rl.group)
        measures |= {f"{key}/{name}": value for key, value in judged.items()}
    return measures, {"reports": len(texts)}


def _network(session: Session) -> CheXbertLabeller:
    """The labeller that gives the gradient: CheXbert, or one that learns from the reward's."""
    labeller, settings = session.rewards.labeller, session.recipe.token_weights
    if isinstance(labeller.labeller, CheXbertLabeller):
        return labeller.labeller
    bar: Bar[int] = progress(settings.distil_steps, "learning to weigh tokens")
    with bar:
        return distil(
            labeller,
            [study.report for study in session.split("train") if study.report],
            seed=session.recipe.seed,
            steps=settings.distil_steps,
            each=bar.advance,
        )


def _sampled(session: Session, train: Sequence[Study], studies: int) -> list[Group]:
    """A group for each of some training studies, drawn at the recipe's temperature."""
    recipe, policy = session.recipe, session.policy
    order = np.random.default_rng((recipe.seed, DRAW)).permutation(len(train))[:studies]
    chosen = [int(i) for i in np.sort(order)]
    places = range(recipe.rl.group)
    groups = []
    bar: Bar[int] = progress(len(chosen), "sampling")
    with bar, torch.no_grad():
        for begin in range(0, len(chosen), BATCH):
            part = chosen[begin : begin + BATCH]
            encoded = [session.prompts(train[i]) for i in part]
            request = SamplingRequest(
                encoded,
                group=recipe.rl.group,
                temperature=recipe.rl.temperature,
                max_new_tokens=recipe.rl.max_new_tokens,
                seeds=[[philox_seed(recipe.seed, 1, i, k) for k in places] for i in part],
            )
            rollouts = generate(policy, request)
            for i, prompt, drawn in zip(part, encoded, rollouts, strict=True):
                own = [
                    Member(r.ids, policy.codec.decode(r.ids), "sampled", r.finished) for r in drawn
                ]
                groups.append(Group(i, train[i], prompt, tuple(own)))
            bar.advance(len(part))
    return groups
