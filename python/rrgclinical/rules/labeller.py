"""The 14 observations read by rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rrgclinical.common.arguments import check_reports
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, SUPPORT_DEVICES, ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.sentences import split_plain
from rrgclinical.rules.summary import sums_up

_RANK = {ClassId.BLANK: 0, ClassId.NEGATIVE: 1, ClassId.UNCERTAIN: 2, ClassId.POSITIVE: 3}
_DENIED = _RANK[ClassId.NEGATIVE]
_OF_RANK = np.array([ClassId.BLANK, ClassId.NEGATIVE, ClassId.UNCERTAIN, ClassId.POSITIVE])
_RANKS = tuple(_RANK[ClassId(status)] for status in range(4))


class RulesLabeller:
    """Deterministic labels in CheXbert's ids, without a model. Not CheXbert, and not named so.

    Per observation over the sentences of a report: positive > uncertain > negative > blank, as
    chexpert-labeler (Irvin et al., 2019) aggregates. No Finding is positive iff nothing outside
    Support Devices is positive or uncertain and a sentence says so: it denies a finding, calls a
    structure normal, or sums up ("unremarkable"). A report that says nothing is blank throughout.
    """

    def label(self, reports: Sequence[str]) -> np.ndarray:
        """int8 `[R, 14]`. TypeError names the first report that is not a str."""
        texts = check_reports(reports)
        ranks = np.zeros((len(texts), len(OBSERVATIONS)), dtype=np.int8)
        for row, text in zip(ranks, texts, strict=True):
            _label(text, row)
        return _OF_RANK.astype(np.int8)[ranks]


def _label(text: str, ranks: np.ndarray) -> None:
    best = [0] * len(OBSERVATIONS)
    doubtful = _RANK[ClassId.UNCERTAIN]
    text, spans = split_plain(text)
    denied = False
    for start, end in spans:
        for mention in read_sentence(text[start:end]):
            concept = CONCEPTS[mention.concept]
            rank = _RANKS[mention.status]
            denied |= rank == _DENIED
            for column in concept.states:
                best[column] = max(best[column], rank)
            for column in concept.suggests:
                best[column] = max(best[column], min(rank, doubtful))
    found = any(
        rank >= doubtful
        for column, rank in enumerate(best)
        if column not in (SUPPORT_DEVICES, NO_FINDING)
    )
    if not found and (denied or any(sums_up(text[start:end]) for start, end in spans)):
        best[NO_FINDING] = _RANK[ClassId.POSITIVE]
    ranks[:] = best
