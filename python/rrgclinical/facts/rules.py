"""Facts and verdicts offline: clauses, and the assertion rules of the rules labeller."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.common.arguments import check_reports
from rrgclinical.facts.reading import DENIED, ENTAILED, LABELS, NOT_MENTIONED, FactReading
from rrgclinical.labels import ClassId
from rrgclinical.rules import says_normal
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.sentences import split_sentences

# Where one statement ends and the next begins. "and" alone joins findings under one negation.
_BORDER = re.compile(
    r"\s*(?:;|,?\s+\b(?:but|however|although|whereas|while)\b,?|,\s+and\b)\s*", re.I
)
_OF_STATUS = {
    ClassId.POSITIVE: ENTAILED,
    ClassId.UNCERTAIN: ENTAILED,
    ClassId.NEGATIVE: DENIED,
    ClassId.BLANK: NOT_MENTIONED,
}


class RulesFacts:
    """Each clause of a sentence is a fact; verdicts are those of the rules labeller.

    A finding stated or suspected is entailed, one denied is denied, and entailed wins where a
    report says both.
    """

    def read(self, reports: Sequence[str]) -> list[FactReading]:
        """One reading per report. TypeError names a report that is not a str."""
        return [_read(text) for text in check_reports(reports)]


def clauses(sentence: str) -> list[tuple[int, int]]:
    """(start, end) of the clauses of a sentence, in order, without the words between them."""
    spans, start = [], 0
    for border in _BORDER.finditer(sentence):
        spans.append((start, border.start()))
        start = border.end()
    spans.append((start, len(sentence)))
    return [(a, b) for a, b in spans if any(map(str.isalnum, sentence[a:b]))]


def _read(text: str) -> FactReading:
    facts: list[str] = []
    verdicts = [NOT_MENTIONED] * len(LABELS)
    evidence: list[int | None] = [None] * len(LABELS)
    sentences = [text[start:end] for start, end in split_sentences(text)]
    for sentence in sentences:
        first, spans = len(facts), clauses(sentence)
        facts.extend(" ".join(sentence[a:b].split()).strip(" ,.") for a, b in spans)
        for mention in read_sentence(sentence):
            concept = CONCEPTS[mention.concept]
            verdict = _OF_STATUS[ClassId(mention.status)]
            before = sum(a <= mention.start for a, _ in spans)
            fact = first + max(before, 1) - 1
            for column in (*concept.states, *concept.suggests):
                held = verdicts[column]
                if held == NOT_MENTIONED or (held == DENIED and verdict == ENTAILED):
                    verdicts[column] = verdict
                    evidence[column] = None if verdict == NOT_MENTIONED else fact
    return FactReading.of(facts, verdicts, evidence, well=any(map(says_normal, sentences)))
