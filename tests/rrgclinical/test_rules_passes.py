"""Reading passes over a report as few times as it must: passes are counted, not timed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rrgclinical.rules import RulesExtractor, RulesLabeller, assertion, sentences, split_sentences
from rrgclinical.rules.lexicon import find_events
from rrgclinical.severity import Severity
from rrgdata.phantom import PhantomConfig, sample_case, write_report
from tests.rrgclinical.cases import cases


def reports() -> list[str]:
    config = PhantomConfig()
    drawn = [sample_case(config, (0, 0, number)) for number in range(60)]
    return [write_report(case, case.findings, case.negated, config) for case in drawn]


class Counted:
    """A pattern that counts what it is asked."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.passes = pattern, 0

    def __getattr__(self, name: str) -> Any:
        self.passes += 1
        return getattr(self.pattern, name)


def test_labels_entities_and_severity_read_a_distinct_sentence_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # with words that no other test has had read
    texts = [re.sub(r"\.(?= |$)", ", image nine of ninety.", text) for text in reports()]
    distinct = {text[start:end] for text in texts for start, end in split_sentences(text)}
    looked: list[str] = []

    def events(sentence: str) -> Any:
        looked.append(sentence)
        return find_events(sentence)

    monkeypatch.setattr(assertion, "find_events", events)
    Severity().judge(texts, [*texts[1:], texts[0]])
    RulesLabeller().label(texts)
    RulesExtractor().extract(texts)
    assert sorted(looked) == sorted(distinct)


def test_most_stops_are_told_without_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*reports(), *(text for text, _ in cases())]
    stops = sum(text.count(". ") + text.endswith(".") for text in texts)
    counted = [Counted(sentences._LAST_WORD), Counted(sentences._LIST_MARKER)]
    monkeypatch.setattr(sentences, "_LAST_WORD", counted[0])
    monkeypatch.setattr(sentences, "_LIST_MARKER", counted[1])
    for text in texts:
        split_sentences(text)
    assert stops > 500
    assert all(0 < pattern.passes < 0.25 * stops for pattern in counted)


def test_what_a_phrase_is_is_gathered_once() -> None:
    first, second = (find_events(text)[0] for text in ("No effusion.", "No acute edema."))
    assert first.cues is second.cues and first.roles is second.roles
    assert first.cues == {role.cue for role in first.roles}


def test_a_sentence_that_is_read_keeps_its_state_in_slots() -> None:
    assert not hasattr(assertion._Reader([], ""), "__dict__")
