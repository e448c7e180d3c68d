"""Families of wordings: every cue with every finding, before it, behind it and in lists."""

from __future__ import annotations

import itertools

import pytest

from rrgclinical import OBSERVATIONS, ClassId, build_extractor, build_labeller
from tests.rrgclinical.cases import table, templates

LABELLER = build_labeller("rules")
EXTRACTOR = build_extractor("rules")

FINDINGS = table("findings of families")
PAIRS = list(itertools.permutations(FINDINGS, 2))

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


def entities(text: str) -> list[tuple[str, int]]:
    found = EXTRACTOR.extract([text])
    pairs = zip(found.text, found.presence.tolist(), strict=True)
    return [(name, presence) for name, presence in pairs if presence >= 0]


def misread(sentences) -> list[tuple]:
    """(sentence, wanted, read) of the (sentence, wanted) pairs that are read otherwise."""
    return [(text, wanted, said(text)) for text, wanted in sentences if said(text) != wanted]


@pytest.mark.parametrize("status", FAMILIES, ids=lambda status: status.name.lower())
def test_every_cue_with_every_finding(status):
    assert not misread(
        (template.replace("{}", finding), {column: status} if status else {})
        for template in templates(FAMILIES[status])
        for finding, column in FINDINGS.items()
    )


@pytest.mark.parametrize("template", templates("LIST_DENIED"))
def test_a_list_stays_denied(template):
    triples = [(a, b, next(f for f in FINDINGS if f not in (a, b))) for a, b in PAIRS]
    named = template.count("{}")
    assert not misread(
        (template.format(*names), {FINDINGS[name]: ClassId.NEGATIVE for name in names[:named]})
        for names in triples
    )


@pytest.mark.parametrize(
    ("template", "status", "of_second"),
    [
        *((template, "POSITIVE", "NEGATIVE") for template in templates("SECOND_DENIED")),
        *((template, "NEGATIVE", status) for template, status in table("new statements")),
    ],
)
def test_the_second_is_read_for_itself(template, status, of_second):
    assert not misread(
        (
            template.format(first, second),
            {FINDINGS[first]: ClassId[status], FINDINGS[second]: ClassId[of_second]},
        )
        for first, second in PAIRS
    )


@pytest.mark.parametrize("template", templates("NOT_TOLD_APART"))
def test_what_nothing_tells_apart_is_doubted(template):
    assert not misread(
        (template.format(*pair), {FINDINGS[name]: ClassId.UNCERTAIN for name in pair})
        for pair in PAIRS
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
    assert any(text.endswith(name) for text, _ in entities(sentence))
