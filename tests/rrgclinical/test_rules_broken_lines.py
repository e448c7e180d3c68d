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


@pytest.mark.parametrize(
    "text",
    [
        "DENSITIES LIKELY DUE TO WORSENING\nPULMONARY EDEMA.",
        "EFFUSIONS AND SUSPECTED\nPULMONARY EDEMA.",
        "NO SIGN OF CONGESTIVE\nHEART FAILURE OR PNEUMONIA.",
    ],
)
def test_a_break_behind_a_participle_ends_nothing(text):
    assert split_sentences(text) == [(0, len(text))]


@pytest.mark.parametrize(
    "text",
    [
        "Heart size is normal\nEffusion is present",
        "No effusion identified\nPulmonary edema",
        "Effusion is unchanged\nCardiomegaly",
        "The effusion is small\nNo pneumothorax",
    ],
)
def test_a_break_behind_a_statement_ends_it(text):
    assert len(split_sentences(text)) == 2
