"""Advantages by finding against a group worked out by hand, in fp64."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.by_finding import finding_advantages, token_advantages

EFFUSION, DENIED = "There is a left pleural effusion.", "No pleural effusion."
OTHER, CLEAR = "There is a right pneumothorax.", "Stable appearance."


def test_advantages_of_a_group_by_hand() -> None:
    # right, missed, right; invented once; left out by all
    present = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
    expected = [[1 / 3, 1 / 3, 0], [-2 / 3, 1 / 3, 0], [1 / 3, -2 / 3, 0]]
    got = finding_advantages(present, np.array([True, False, False]))
    assert got.dtype == np.float64 and np.allclose(got, expected, rtol=0, atol=1e-15)
    assert np.allclose(got.sum(0), 0, atol=1e-15), "a finding moves the group against itself alone"
    with pytest.raises(ValueError, match=r"present \(3, 3\), truth \(2,\)"):
        finding_advantages(present, np.array([True, False]))


def test_tokens_have_the_advantage_of_the_findings_of_their_sentence() -> None:
    reports = [f"{EFFUSION} {CLEAR}", f"{CLEAR} {DENIED}", f"{EFFUSION} {OTHER}", CLEAR]
    firsts = [np.array([0, 6, len(r.split(".")[0]) + 2, -1]) for r in reports]
    firsts[3] = np.array([0, 7, -1])
    got = token_advantages(reports, EFFUSION, firsts)
    # effusion: values 1 0 1 0, mean 1/2; pneumothorax: 0 0 -1 0, mean -1/4
    expected = [[0.5, 0.5, 0, 0], [0, 0, -0.5, 0], [0.5, 0.5, -0.75, 0], [0, 0, 0]]
    for values, want in zip(got, expected, strict=True):
        assert np.allclose(values, want, rtol=0, atol=1e-15)
