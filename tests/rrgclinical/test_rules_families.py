"""Families of wordings: every cue with every finding, before it, behind it and in lists."""

from __future__ import annotations

import itertools

import pytest

from rrgclinical import OBSERVATIONS, ClassId, build_extractor, build_labeller
from tests.rrgclinical.cases import templates

LABELLER = build_labeller("rules")
EXTRACTOR = build_extractor("rules")

FINDINGS = {
    "pleural effusion": "Pleural Effusion",
    "pneumothorax": "Pneumothorax",
    "pneumonia": "Pneumonia",
    "focal consolidation": "Consolidation",
    "pulmonary edema": "Edema",
    "pulmonary nodule": "Lung Lesion",
    "bibasilar atelectasis": "Atelectasis",
    "cardiomegaly": "Cardiomegaly",
    "rib fracture": "Fracture",
    "airspace opacity": "Lung Opacity",
}
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


@pytest.mark.parametrize(
    "template",
    [
        "No evidence of {}, large {}.",
        "No {}, large {}.",
        "Negative for {}, significant {}.",
        "No {}, large {}, or gross {}.",
        "There is no {}, {} or {} seen.",
        "This does not appear to be {} or {}.",
        "No {}, {}, {}.",
        "Neither {} nor {} is identified.",
    ],
)
def test_a_list_stays_denied(template):
    triples = [(a, b, next(f for f in FINDINGS if f not in (a, b))) for a, b in PAIRS]
    named = template.count("{}")
    assert not misread(
        (template.format(*names), {FINDINGS[name]: ClassId.NEGATIVE for name in names[:named]})
        for names in triples
    )


@pytest.mark.parametrize(
    "template",
    [
        "Stable {} after {} has resolved.",
        "{} is more conspicuous now that the {} has resolved.",
        "{} is larger since the {} has cleared.",
        "{} is unchanged where the {} has resolved.",
        "{} persists even as the {} has cleared.",
        "{} in the absence of {}.",
        "{} without {} is unchanged.",
    ],
)
def test_only_the_second_is_denied(template):
    assert not misread(
        (
            template.format(first, second),
            {FINDINGS[first]: ClassId.POSITIVE, FINDINGS[second]: ClassId.NEGATIVE},
        )
        for first, second in PAIRS
    )


@pytest.mark.parametrize(
    "template",
    [
        "{} cannot be distinguished from {}.",
        "{} could not be separated from {}.",
        "{} is difficult to differentiate from {}.",
        "{} is indistinguishable from {}.",
        "{} and {} cannot be differentiated.",
        "Cannot distinguish {} from {}.",
        "It is difficult to distinguish {} from {}.",
        "Unable to differentiate {} and {}.",
    ],
)
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


@pytest.mark.parametrize(
    ("template", "status"),
    [
        ("No {}, large {} is present.", ClassId.POSITIVE),
        ("No {}, large left {}.", ClassId.POSITIVE),
        ("No {}, small {}.", ClassId.POSITIVE),
        ("No {}, stable {}.", ClassId.POSITIVE),
        ("No {}, {} is unchanged.", ClassId.POSITIVE),
        ("No {}, the {} has increased.", ClassId.POSITIVE),
        ("No {} and the {} is unchanged.", ClassId.POSITIVE),
        ("No {} is seen, left {}.", ClassId.POSITIVE),
        ("No definite {} seen, left hilar calcifications and {} are present.", ClassId.POSITIVE),
        ("No {} seen, dense {} in the left lung suggests an old process.", ClassId.POSITIVE),
        ("No {}, {} may represent an old process.", ClassId.POSITIVE),
        ("No {}, possible {}.", ClassId.UNCERTAIN),
        ("No {} but {} is suspected.", ClassId.UNCERTAIN),
    ],
)
def test_a_new_statement_ends_a_denial(template, status):
    assert not misread(
        (
            template.format(first, second),
            {FINDINGS[first]: ClassId.NEGATIVE, FINDINGS[second]: status},
        )
        for first, second in PAIRS
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "Stable heart size, moderately enlarged and tortuous calcified aorta.",
        "Heart size normal, aorta enlarged.",
        "Normal heart size, enlarged and tortuous aorta.",
        "The heart is normal and the aorta is dilated.",
        "Heart size is normal with an enlarged and ectatic aorta.",
        "Heart size stable, enlarged hila.",
    ],
)
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


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("Calcified hilar lymph nodes.", [("middle granuloma", 1)]),
        ("Sequelae of old granulomatous disease.", [("granuloma", 1)]),
        ("Residuals of prior granulomatous infection.", [("granuloma", 1)]),
        ("No pathologic calcifications.", [("calcification", 0)]),
        ("There is calcification of the thoracic aorta.", [("aortic calcification", 1)]),
        ("Soft tissues are unremarkable.", [("soft tissue abnormality", 0)]),
        ("The thoracic spine appears intact.", [("bone abnormality", 0)]),
        ("The remainder of the lungs appear clear.", [("opacity", 0)]),
        ("Azygos lobe is noted.", [("azygos lobe", 1)]),
        ("No radiopaque foreign body.", [("foreign body", 0)]),
        ("Mild dextrocurvature of the spine.", [("small scoliosis", 1)]),
        ("Normal and stable cardiomediastinal contours.",
         [("enlarged cardiomediastinum", 0), ("cardiomegaly", 0)]),
        ("Normal size and configuration of the cardiac silhouette.", [("cardiomegaly", 0)]),
        ("The main pulmonary artery is enlarged.", [("pulmonary hypertension", 1)]),
        ("Large cervical spine osteophytes.", [("large degenerative change", 1)]),
    ],
)  # fmt: skip
def test_frequent_sentences_have_their_entities(sentence, wanted):
    assert entities(sentence) == wanted
