"""No Finding is positive where a report says so, and a text that says nothing is blank."""

from __future__ import annotations

import pytest

from rrgclinical import ClassId, build_labeller
from rrgclinical.facts import RulesFacts
from rrgclinical.labels import NO_FINDING
from rrgclinical.stress import IDLE, NOTHING

LABELLER = build_labeller("rules")
SILENT = (
    *(*NOTHING, *IDLE, "", "x", "nan", "None.", "-1", "XXXX.", "[redacted]", "Not available."),
    *("Not given.", "Comparison: none.", "Portable chest.", "PA and lateral views."),
    *("Evaluate for pneumonia.", "No prior for comparison.", "No interval change.", "..."),
    *("Lorem ipsum dolor sit amet.", "Clear liquid diet.", "No acute distress.", "the the the"),
    *("AP view of the chest.", "Stable appearance of the chest.", "Report to follow."),
)
NORMAL = (
    *("Normal.", "Unremarkable.", "Negative.", "Normal study.", "Chest clear.", "NAD."),
    *("No acute disease.", "No acute thoracic XXXX.", "Nil acute.", "Nothing abnormal detected."),
    *("Unremarkable examination.", "The heart is normal.", "Trachea midline.", "No scoliosis."),
    *("Lungs are clear.", "No effusion.", "No abnormality.", "Within normal limits."),
    *("1. Negative. No significant change.", "Impression: normal chest x-ray.", "Nil effusion."),
)


@pytest.mark.parametrize("text", SILENT)
def test_a_text_that_says_nothing_is_blank(text):
    assert not LABELLER.label([text]).any()
    (reading,) = RulesFacts().read([text])
    assert not any(reading.verdicts)


@pytest.mark.parametrize("text", NORMAL)
def test_a_report_that_says_that_all_is_well_is_no_finding(text):
    assert LABELLER.label([text])[0, NO_FINDING] == ClassId.POSITIVE
    (reading,) = RulesFacts().read([text])
    assert reading.verdicts[NO_FINDING] == ClassId.POSITIVE


@pytest.mark.parametrize("text", ["Scoliosis.", "Pneumonia. No effusion.", "Possible edema."])
def test_a_report_that_names_something_is_not(text):
    assert LABELLER.label([text])[0, NO_FINDING] == ClassId.BLANK
