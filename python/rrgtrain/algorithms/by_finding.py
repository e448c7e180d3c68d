"""Give each sentence of a group's reports the advantage of the findings that it states.

Of N reports of one study and its reference, with y_f whether the reference has finding f (positive
or uncertain) and p_if whether report i has it, over the 13 findings of the reward's labeller:

    v_if = p_if        where y_f = 1     right 1, missed 0
    v_if = -p_if       where y_f = 0     left out 0, invented -1
    A_if = v_if - mean_j v_jf            as Dr. GRPO's, by finding in place of by report
    a_it = sum over f stated, or denied, in the sentence of token t of A_if

So a finding that all have right, or none, moves nothing, and a rare right one stands out from a
report that is otherwise as wrong as the others. A report that misses a finding in silence has no
sentence to be blamed; one that denies it has. `rl.by_finding` times a is added to each token's
advantage, times its weight, of the algorithm below. A token is of the sentence in which its first
character lies; tokens between sentences, and the end of turn, have 0. A finding in two sentences
moves both. Members that are not scored count in no mean and have 0.

The idea of a reward by finding over the group is ESC-RL's (2604.13598), which is known here by its
abstract alone: this is no copy of it, and no study was made with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from rrgclinical import Labeller
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, ClassId, to_binary
from rrgclinical.rules import split_sentences
from rrgpolicy.model.codec import ReportCodec
from rrgtrain.algorithms.base import Algorithm, Context, as_objective, refuse_blocks
from rrgtrain.algorithms.group import Group, Objective, token_offsets
from rrgtrain.rewards.term_models import open_labeller
from rrgtrain.schema import RewardSettings

FINDINGS = np.array([i for i in range(len(OBSERVATIONS)) if i != NO_FINDING])


def finding_advantages(present: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute A, float64 [N, F], of `present` bool [N, F] and `truth` bool [F]."""
    values = np.where(truth, 1.0, -1.0) * present
    return np.asarray(values - values.mean(0))


def token_advantages(
    labeller: Labeller, reports: Sequence[str], reference: str, firsts: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Compute a, float64 [T_i] of each report.

    firsts: int64 [T_i], the character at which each token begins, -1 for one without text.
    """
    spans = [split_sentences(report) for report in reports]
    sentences = [text[a:b] for text, own in zip(reports, spans, strict=True) for a, b in own]
    labels = labeller.label([reference, *reports, *sentences])  # one batch: it may be a model
    has = to_binary(labels[: 1 + len(reports)])[:, FINDINGS].astype(bool)
    stated = iter(labels[1 + len(reports) :, FINDINGS] != ClassId.BLANK)
    tokens = [np.zeros(len(first)) for first in firsts]
    rows = zip(tokens, finding_advantages(has[1:], has[0]), firsts, spans, strict=True)
    for values, own, first, sentences_of in rows:
        for begin, end in sentences_of:
            values[(first >= begin) & (first < end)] = own[next(stated)].sum()
    return tokens


def build(weight: float, reward: RewardSettings, inner: Algorithm) -> Algorithm:
    """Add the advantages by finding to those of `inner`; UserError for reports in blocks."""
    refuse_blocks(reward.blocks, "by_finding reads the sentences of the whole text")
    labeller = open_labeller(reward)
    codecs: list[ReportCodec] = []

    def prepare(context: Context) -> None:
        inner.prepare(context)
        codecs[:] = [context.codec]

    def advantages(groups: list[Group], rewards: torch.Tensor) -> Objective:
        objective = as_objective(inner.advantages(groups, rewards))
        own = torch.from_numpy(np.concatenate([of_group(labeller, codecs[0], g) for g in groups]))
        value, lengths = objective.advantages, token_offsets(groups).diff()
        per_member = value.shape in ((len(lengths),), (len(lengths), 1))
        value = value.reshape(-1).repeat_interleave(lengths) if per_member else value.reshape(-1)
        value = value if objective.weight is None else value * objective.weight
        moved = {"by_finding/moved": float((own != 0).double().mean())}
        return replace(
            objective,
            advantages=(value + weight * own.to(value))[None],
            weight=None,
            metrics={**objective.metrics, **moved},
        )

    return replace(inner, advantages=advantages, prepare=prepare, needs_reports=True)


def of_group(labeller: Labeller, codec: ReportCodec, group: Group) -> np.ndarray:
    """Compute a of every token of a group's members, float64 [N]."""
    scored = [member for member in group.members if member.scored]
    spans = [np.array(codec.char_spans(m.ids)).reshape(-1, 2) for m in scored]
    firsts = [np.where(a < b, a, -1) for a, b in (own.T for own in spans)]
    texts = [member.text for member in scored]
    reference = group.study.report or ""
    own = iter(token_advantages(labeller, texts, reference, firsts) if texts else ())
    parts = [next(own) if m.scored else np.zeros(len(m.ids)) for m in group.members]
    return np.concatenate(parts)
