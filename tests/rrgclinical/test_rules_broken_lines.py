"""A line that breaks behind an adjective goes on, whatever the case of what follows."""

from __future__ import annotations

import pytest

from rrgclinical.rules import split_sentences

ADJECTIVES = "acute focal large overt recent suspicious confluent displaced loculated worrisome"
NOUNS = ("Pneumonia", "T8 compression fracture", "Effusion", "Lung Nodule", "L1 fracture")
OPENINGS = ("No evidence of ", "Without ", "no ", "No Consolidation, Edema, Or ", "There is no ")
CASES = (str, str.upper, str.lower)


@pytest.mark.parametrize("adjective", ADJECTIVES.split())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_break_behind_an_adjective_ends_nothing(adjective, case):
    for opening in OPENINGS:
        for noun in NOUNS:
            for stop in (".", ""):
                text = case(f"{opening}{adjective}\n{noun}{stop}")
                assert split_sentences(text) == [(0, len(text))], text


PARTICIPLES = "enlarged worsening suspected congestive persistent dilated noticeable troublesome"
LEADING = "due to|and|there is|now|newly|stable|moderately|the chronically|No effusion.|As before,|"
NAMED = ("cardiac silhouette as before.", "pulmonary edema.", "heart failure or pneumonia.")


@pytest.mark.parametrize("participle", PARTICIPLES.split())
def test_a_break_behind_a_participle_ends_nothing(participle):
    for leading in LEADING.split("|"):
        for noun in NAMED:
            text = f"{leading} {participle}\n{noun}".strip().upper()
            assert len(split_sentences(text)) == 1 + ("." in leading), text
            said = f"The heart is not {participle}\nPleural thickening".upper()
            assert len(split_sentences(said)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Heart size is normal\nEffusion is present",
        "No effusion identified\nPulmonary edema",
        "Effusion is unchanged\nCardiomegaly",
        "The effusion is small\nNo pneumothorax",
        "EFFUSION SLIGHTLY INCREASED\nPULMONARY EDEMA",
        "HEART: ENLARGED\nPULMONARY EDEMA",
    ],
)
def test_a_break_behind_a_statement_ends_it(text):
    assert len(split_sentences(text)) == 2
