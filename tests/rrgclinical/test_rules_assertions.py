"""Assertions that were misread, by kind: templates over every finding of the tables."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable

import pytest

from rrgclinical import OBSERVATIONS, ClassId, build_extractor, build_labeller
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.sentences import split_sentences
from tests.rrgclinical.cases import FINDINGS, KINDS, drawn, table, templates

LABELLER = build_labeller("rules")
TERMS = {
    number: " ".join(word.rstrip("?").split("|")[0] for word in concept.phrases[0].split())
    for number, concept in enumerate(CONCEPTS)
    if not concept.anatomy
}
RANK = {ClassId.BLANK: 0, ClassId.NEGATIVE: 1, ClassId.UNCERTAIN: 2, ClassId.POSITIVE: 3}
TEMPLATES = {
    "POSITIVE_TWICE_DENIED": ClassId.POSITIVE,
    "UNCERTAIN_TWICE_DENIED": ClassId.UNCERTAIN,
    "LIMITED": ClassId.POSITIVE,
    "NO_MORE": ClassId.NEGATIVE,
    "EXCEPTED": ClassId.POSITIVE,
    "EXCEPTED_POSSIBLY": ClassId.UNCERTAIN,
    "EXCEPTED_OTHER": ClassId.NEGATIVE,
    "DENIED_FIRST": ClassId.NEGATIVE,
    "SOUGHT": ClassId.BLANK,
    "STANDING": ClassId.POSITIVE,
    "HEDGED": ClassId.UNCERTAIN,
    "EARLIER": ClassId.BLANK,
    "STILL": ClassId.POSITIVE,
}
SENTENCES = {
    "FAILURES": ("Edema", ClassId.BLANK),
    "HEART_FAILURES": ("Edema", ClassId.POSITIVE),
    "CALCIFIED": ("Lung Lesion", ClassId.BLANK),
    "NOT_CALCIFIED": ("Lung Lesion", ClassId.POSITIVE),
    "HILAR_MASSES": ("Lung Lesion", ClassId.POSITIVE),
}
# A piece that is said again and again in one sentence, behind an opening.
ENDLESS = table("endless")


def status(text: str, concept: int) -> int:
    """The highest status of a concept over the sentences of a text; BLANK where it is unsaid."""
    mentions = (m for start, end in split_sentences(text) for m in read_sentence(text[start:end]))
    found = [ClassId(m.status) for m in mentions if m.concept == concept]
    return max(found, key=RANK.__getitem__, default=ClassId.BLANK)


def filled(template: str, term: str) -> str:
    text = template.replace("{}", term)
    return text[0].upper() + text[1:]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_kind_of_assertion_is_read_of_every_finding(kind):
    """A finding that the template names itself is left out; two of the others may clash with it."""
    misread = {}
    for template in templates(kind):
        wrong = [
            term
            for concept, term in TERMS.items()
            if term not in template and status(filled(template, term), concept) != TEMPLATES[kind]
        ]
        if len(wrong) > 2:
            misread[template] = wrong
    assert not misread


@pytest.mark.parametrize("kind", SENTENCES)
def test_failures_edemas_nodules_and_masses_are_told_apart(kind):
    observation, wanted = SENTENCES[kind]
    texts = templates(kind)
    labels = LABELLER.label(texts)[:, OBSERVATIONS.index(observation)]
    assert not [text for text, label in zip(texts, labels, strict=True) if label != wanted]


@pytest.mark.parametrize(("opening", "piece"), ENDLESS)
def test_a_sentence_of_any_length_takes_linear_time(opening, piece):
    """Counted in lines of Python run, which no other work on the machine disturbs."""
    texts = [f"{opening}{piece * n}edema" for n in (60, 120)]
    for text in texts:
        read_sentence(text)  # the tables are compiled and the words known
    read_sentence.cache_clear()
    short, long = (_lines_run(read_sentence, text) for text in texts)
    assert long <= 2.6 * short


def test_a_list_of_any_length_is_cut_in_linear_time():
    texts = [" ".join(f"{place}. effusion" for place in range(1, n)) for n in (50, 99)]
    short, long = (_lines_run(split_sentences, text) for text in texts)
    assert long <= 2.6 * short


def _lines_run(read: Callable[[str], object], text: str) -> int:
    count = 0

    def step(frame, event, argument):
        nonlocal count
        count += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        read(text)
    finally:
        sys.settrace(before)
    return count


# Denial, doubt and duty: the class of a sentence follows from its parts, for every finding.
EACH = 40
"""Readings drawn of a template."""
RIGHT = 0.97


def misread(texts: list[tuple[str, str]], status: ClassId) -> list[str]:
    labels = LABELLER.label([text for text, _ in texts])
    return [
        text
        for (text, finding), row in zip(texts, labels, strict=True)
        if row[OBSERVATIONS.index(finding)] != status
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_follows_from_the_parts(kind):
    status, templates = KINDS[kind]
    rng = random.Random(kind)
    texts = []
    for template in templates:
        for sentence in drawn(template, EACH, rng):
            for finding, term in FINDINGS.items():
                text = sentence.replace("{}", term)
                texts.append((text[0].upper() + text[1:], finding))
    assert len(misread(texts, status)) <= (1 - RIGHT) * len(texts), misread(texts, status)[:20]


SLIPS = {
    "cannot": ("{} cannot be excluded.", ClassId.UNCERTAIN),
    "excluded": ("{} cannot be excluded.", ClassId.UNCERTAIN),
    "ruled": ("{} cannot be ruled out.", ClassId.UNCERTAIN),
    "without": ("clear lungs without {}.", ClassId.NEGATIVE),
    "not": ("{} is not seen.", ClassId.NEGATIVE),
    "no": ("there is no {}.", ClassId.NEGATIVE),
    "never": ("{} was never seen.", ClassId.NEGATIVE),
    "unable": ("unable to exclude {}.", ClassId.UNCERTAIN),
    "unlikely": ("{} is unlikely.", ClassId.NEGATIVE),
    "possible": ("possible {}.", ClassId.UNCERTAIN),
    "evidence": ("no evidence of {}.", ClassId.NEGATIVE),
    "absent": ("{} is absent.", ClassId.NEGATIVE),
    "negative": ("negative for {}.", ClassId.NEGATIVE),
}


def slips(word: str) -> list[str]:
    """A letter doubled or dropped, two swapped; of a short word letters are doubled alone."""
    places = range(1, len(word))
    doubled = [word[:place] + word[place - 1 :] for place in range(1, len(word) + 1)]
    if len(word) < 5:
        return doubled
    dropped = [word[:place] + word[place + 1 :] for place in places]
    swapped = [
        word[:place] + word[place + 1] + word[place] + word[place + 2 :] for place in places[:-1]
    ]
    other = {"exclude", "rule", word}  # words of their own
    return [slip for slip in (*doubled, *dropped, *swapped) if slip not in other]


@pytest.mark.parametrize("word", SLIPS)
def test_a_slip_in_a_word_that_denies_or_doubts_changes_nothing(word):
    template, status = SLIPS[word]
    texts = [
        (template.replace(word, slip).replace("{}", term), finding)
        for slip in slips(word)
        for finding, term in FINDINGS.items()
    ]
    assert not misread(texts, status)


# Families of wordings: every cue with every finding, before it, behind it and in lists.
EXTRACTOR = build_extractor("rules")

FAMILIAR = table("findings of families")
PAIRS = list(itertools.permutations(FAMILIAR, 2))

FAMILIES = {
    ClassId.NEGATIVE: "DENIED",
    ClassId.UNCERTAIN: "DOUBTED",
    ClassId.POSITIVE: "STATED",
    ClassId.BLANK: "UNASSERTED",
}


def said(text: str) -> dict[str, ClassId]:
    row = LABELLER.label([text])[0]
    return {
        name: ClassId(value)
        for name, value in zip(OBSERVATIONS, row, strict=True)
        if value and name != "No Finding"
    }


def misread_pairs(sentences) -> list[tuple]:
    return [(text, wanted, said(text)) for text, wanted in sentences if said(text) != wanted]


@pytest.mark.parametrize("status", FAMILIES, ids=lambda status: status.name.lower())
def test_every_cue_with_every_finding(status):
    assert not misread_pairs(
        (template.replace("{}", finding), {column: status} if status else {})
        for template in templates(FAMILIES[status])
        for finding, column in FAMILIAR.items()
    )


OF_SEVERAL = [
    *((one, ["NEGATIVE"] * one.count("{}")) for one in templates("LIST_DENIED")),
    *((one, ["POSITIVE", "NEGATIVE"]) for one in templates("SECOND_DENIED")),
    *((one, ["NEGATIVE", second]) for one, second in table("new statements")),
    *((one, ["UNCERTAIN", "UNCERTAIN"]) for one in templates("NOT_TOLD_APART")),
]


@pytest.mark.parametrize(("template", "statuses"), OF_SEVERAL)
def test_each_finding_of_a_sentence_is_read_for_itself(template, statuses):
    triples = [(a, b, next(f for f in FAMILIAR if f not in (a, b))) for a, b in PAIRS]
    assert not misread_pairs(
        (
            template.format(*names),
            {FAMILIAR[n]: ClassId[status] for n, status in zip(names, statuses, strict=False)},
        )
        for names in triples
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "There is a small right but no left pleural effusion.",
        "Moderate left and no right pleural effusion.",
    ],
)
def test_a_side_denied_leaves_the_other(sentence):
    found = EXTRACTOR.extract([sentence])
    assert said(sentence) == {"Pleural Effusion": ClassId.POSITIVE}
    assert len(found.text) == 1
    assert "bilateral" not in found.text[0]


@pytest.mark.parametrize("sentence", templates("AORTA_ENLARGED"))
def test_an_adjective_belongs_to_its_own_noun(sentence):
    assert said(sentence).get("Cardiomegaly") != ClassId.POSITIVE


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("Heart size is normal, enlarged aorta.", "tortuous aorta"),
        ("Stable heart size, moderately enlarged and tortuous calcified aorta.", "tortuous aorta"),
        ("Heart size normal, clear lungs.", "opacity"),
    ],
)
def test_and_is_read_there(sentence, name):
    of = EXTRACTOR.extract([sentence])
    read = zip(of.text, of.presence, strict=True)
    assert any(text.endswith(name) for text, presence in read if presence >= 0)
