"""Words with a slip of the keys, and neighbours that are words of their own."""

from __future__ import annotations

import pytest

from rrgclinical import ClassId, build_labeller
from rrgclinical.labels import OBSERVATIONS

LABELLER = build_labeller("rules")


@pytest.mark.parametrize(
    ("text", "name", "status"),
    [
        ("Cardiomegally.", "Cardiomegaly", ClassId.POSITIVE),
        ("Cardiomgaly.", "Cardiomegaly", ClassId.POSITIVE),
        ("No pneumothroax.", "Pneumothorax", ClassId.NEGATIVE),
        ("Left plueral effusions.", "Pleural Effusion", ClassId.POSITIVE),
        ("Bibasilar opacites.", "Lung Opacity", ClassId.POSITIVE),
        ("Bibasilar atelectesis.", "Atelectasis", ClassId.POSITIVE),
        ("Consoldation has not resolved.", "Consolidation", ClassId.POSITIVE),
        ("Possibile pnuemonia.", "Pneumonia", ClassId.UNCERTAIN),
        ("Fractrue of the clavicle.", "Fracture", ClassId.POSITIVE),
    ],
)
def test_a_misspelt_word_is_read(text, name, status):
    assert LABELLER.label([text])[0, OBSERVATIONS.index(name)] == status


@pytest.mark.parametrize(
    "text",
    [
        "Pneumothoraz.",  # a consonant for another
        "Bneumothorax.",  # the first letter
        "Pnuemothroax.",  # two slips
        "Edemma.",  # a short word
        "Rejection.",
        "Injection.",
        "The plural is used.",
    ],
)
def test_another_word_is_left_alone(text):
    assert not LABELLER.label([text])[0, :-1].any()


def test_an_ending_makes_another_word():
    effusion = OBSERVATIONS.index("Pleural Effusion")
    for text in ("The effusion may resolve.", "If the effusion resolves."):
        assert LABELLER.label([text])[0, effusion] != ClassId.NEGATIVE
