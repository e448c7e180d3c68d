"""A report that says nothing earns what the empty one does, by every term without a model file."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from rrgclinical.backends import FILES, absent_files
from rrgclinical.stress import NOTHING
from rrgdata.study import Study
from rrgtrain.rewards import TERMS, RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.paraphrases import few_paraphrases, short_package

__all__ = ["few_paraphrases", "short_package"]

ENDPOINTS = {"green", "crimson"}
OFFICIAL = {"radgraph-official", "ratescore-official"}
BY_RULES = sorted(
    name for name in set(TERMS) - ENDPOINTS - OFFICIAL if not absent_files([name], {})
)
REFERENCES = (
    "No acute cardiopulmonary disease.",
    "The heart is normal. The lungs are clear. No effusion or pneumothorax.",
    "Small left pleural effusion. Cardiomegaly.",
    "Support devices in place.",
)


def test_only_terms_of_models_are_left_out():
    assert {"label_f1", "mccs", "facts", "severity", "entity_f1", "match"} <= set(BY_RULES)
    left = {name.split("_")[0] for name in set(TERMS) - set(BY_RULES) - ENDPOINTS - OFFICIAL}
    assert left <= {*FILES, "radcliq"}


@pytest.mark.usefixtures("few_paraphrases")
@pytest.mark.parametrize("term", BY_RULES)
def test_nothing_said_is_worth_what_the_empty_report_is(term):
    if term in ("meteor", "nlg") and shutil.which("java") is None:
        pytest.skip("METEOR 1.5 is a Java program")
    service = RewardService(RewardSettings(terms={term: 1.0}))
    service.fit([Study(f"t{i}", "train", text, None, ()) for i, text in enumerate(REFERENCES)])
    for reference in REFERENCES:
        ((_, empty),) = service.measure([term], [""], [reference])
        ((_, said),) = service.measure([term], list(NOTHING), [reference] * len(NOTHING))
        np.testing.assert_allclose(said, np.repeat(empty, len(NOTHING)), err_msg=reference)
