"""Settings and samples of other trainers: whatever is wrong is one line, and nothing is guessed."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rrgtrain.errors import UserError
from rrgtrain.integrations.from_trainers import read_settings, reference_of
from rrgtrain.schema import EditSettings, RewardSettings


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (["label_f1"], "^place is ['label_f1']; wanted its keys"),
        ([["device", "cpu"]], "^place is [['device', 'cpu']]; wanted its keys"),
        ([], "^place is []; wanted its keys"),
        ("", "^place is ''; wanted its keys"),
        (False, "^place is False; wanted its keys"),
        (0, "^place is 0; wanted its keys"),
        ({1: 2}, "^place has the key 1; wanted names"),
        ({"term": {}}, "^place: unknown key 'term'; did you mean terms?"),
        ({"terms": "label_f1"}, "^place: terms is 'label_f1' (str); wanted a mapping"),
        ({"terms": {"match": True}}, "^place: terms is {'match': True} (dict); wanted a mapping"),
        ({"terms": {"match": math.nan}}, "^place: terms.match is nan; wanted a finite number"),
        ({"terms": {"match": "???"}}, "^place: Missing mandatory value: match"),
        ({"terms": {"match": "${nowhere}"}}, "^place: Interpolation key 'nowhere' not found"),
        ({"options": {"chexbert": {"weights": Path("/w")}}}, "^place: Object of type PosixPath"),
        ({"cache_texts": 1.5}, "^place: cache_texts is 1.5 (float); wanted a whole number"),
    ],
    ids=repr,
)
def test_settings_that_cannot_be_are_one_line(written, line) -> None:
    pattern = "^" + re.escape(line.removeprefix("^"))
    config = OmegaConf.create({"here": written})
    for form in (config.here, written):
        if form is written and ("???" in repr(written) or "${" in repr(written)):
            continue  # OmegaConf's, and no setting of a plain mapping
        with pytest.raises(UserError, match=pattern) as caught:
            read_settings(RewardSettings, form, "place")
        assert "\n" not in str(caught.value)


def test_settings_are_those_of_a_recipe() -> None:
    assert read_settings(RewardSettings, None, "place") == RewardSettings()
    assert read_settings(RewardSettings, {}, "place") == RewardSettings()
    # of the terms only those that are named
    for form in ({"terms": {"match": 1}}, OmegaConf.create({"terms": {"match": 1}})):
        assert read_settings(RewardSettings, form, "place").terms == {"match": 1.0}
    assert read_settings(EditSettings, {"tau": 0.5}, "place") == EditSettings(tau=0.5)


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        ({}, "a sample has fields: none; wanted"),
        ({"uid": 1}, "a sample has fields: uid; wanted"),
        ({"reward_model": None}, "a sample has reward_model=None; wanted"),
        ({"reward_model": "Edema."}, "a sample has reward_model='Edema.'; wanted"),
        (
            {"reward_model": {"style": "rule"}},
            "a sample has reward_model={.*}; wanted",
        ),
        ({"reward_model": {"ground_truth": ["No."]}}, "a sample has reward_model={.*}; wanted"),
        ({"reward_model": {"ground_truth": None}}, "a sample has reward_model={.*}; wanted"),
    ],
    ids=repr,
)
def test_a_sample_without_a_reference_is_one_line(sample, line) -> None:
    with pytest.raises(UserError, match=f"^{line} reward_model.ground_truth, the text of its ref"):
        reference_of(sample)
    assert reference_of({"reward_model": {"ground_truth": ""}}) == ""
