"""Give each sentence of a group's reports the advantage of the findings that it states.

Of N reports of one study and its reference, with y_f whether the reference has finding f (positive
or uncertain) and p_if whether report i has it, over the 13 findings that `rules` labels:

    v_if = p_if        where y_f = 1     right 1, missed 0
    v_if = -p_if       where y_f = 0     left out 0, invented -1
    A_if = v_if - mean_j v_jf            as Dr. GRPO's, by finding in place of by report
    a_it = sum over f stated, or denied, in the sentence of token t of A_if

So a finding that all have right, or none, moves nothing, and a rare right one stands out from a
report that is otherwise as wrong as the others. A report that misses a finding in silence has no
sentence to be blamed; one that denies it has. `a` is added to an algorithm's own advantages with a
weight, as other token weights are. A token is of the sentence in which its first character lies;
tokens between sentences, and the end of turn, have 0. A finding in two sentences moves both.

The idea of a reward by finding over the group is ESC-RL's (2604.13598), which is known here by its
abstract alone: this is no copy of it, and nothing was trained with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rrgclinical import build_labeller
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, ClassId, to_binary
from rrgclinical.rules import split_sentences

FINDINGS = np.array([i for i in range(len(OBSERVATIONS)) if i != NO_FINDING])


def finding_advantages(present: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute A, float64 [N, F], of `present` bool [N, F] and `truth` bool [F].

    ValueError where there is no report, or the two are of different findings.
    """
    if present.ndim != 2 or not len(present) or present.shape[1:] != truth.shape:
        raise ValueError(f"present {present.shape}, truth {truth.shape}; wanted [N, F] and [F]")
    values = np.where(truth, 1.0, -1.0) * present
    return values - values.mean(0)


def token_advantages(
    reports: Sequence[str], reference: str, firsts: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Compute a, float64 [T_i] of each report.

    firsts: int64 [T_i], the character at which each token begins, -1 for one without text.
    """
    labeller = build_labeller("rules")
    has = to_binary(labeller.label([reference, *reports]))[:, FINDINGS].astype(bool)
    advantages = finding_advantages(has[1:], has[0])
    tokens = []
    for report, own, first in zip(reports, advantages, firsts, strict=True):
        spans = split_sentences(report)
        stated = labeller.label([report[a:b] for a, b in spans])[:, FINDINGS] != ClassId.BLANK
        values = np.zeros(len(first))
        for (begin, end), said in zip(spans, stated, strict=True):
            values[(first >= begin) & (first < end)] = own[said].sum()
        tokens.append(values)
    return tokens
