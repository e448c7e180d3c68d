"""The rules read back the labels of phantom cases from their clean reports."""

from __future__ import annotations

import numpy as np

from rrgclinical import OBSERVATIONS, build_labeller
from rrgdata.phantom import PhantomConfig, sample_case
from rrgdata.phantom.text import write_report

CASES = 600


def test_labels_of_clean_reports_are_the_labels_of_the_case():
    config = PhantomConfig(prior=0.4, uncertain=0.2)
    cases = [sample_case(config, (11, 0, number)) for number in range(CASES)]
    reports = [write_report(case, case.findings, case.negated, config) for case in cases]
    truth = np.array([case.labels() for case in cases])
    labels = build_labeller("rules").label(reports)
    wrong = [
        f"{OBSERVATIONS[column]} {truth[row, column]} read as {labels[row, column]}: {reports[row]}"
        for row, column in np.argwhere(labels != truth)
    ]
    assert len(wrong) <= 0.001 * truth.size, "\n".join(wrong[:5])
    assert all((truth == value).any() for value in range(4))
