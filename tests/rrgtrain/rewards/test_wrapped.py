"""A wrapped reference earns what the same text in one line earns."""

from __future__ import annotations

import pytest

from rrgdata.study import Study
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings


def test_a_wrapped_reference_earns_as_the_same_text_in_one_line() -> None:
    text = "THE LUNGS ARE CLEAR WITHOUT \nCONSOLIDATION, PLEURAL EFFUSION OR\nPNEUMOTHORAX."
    right = "The lungs are clear without consolidation, pleural effusion or pneumothorax."
    wrong = "Consolidation, pleural effusion and pneumothorax."
    service = RewardService(RewardSettings(terms={"label_f1": 1, "entity_f1": 1, "match": 1}))
    studies = [Study("s", "test", way, None, ()) for way in (text, text.replace("\n", " "))]
    one, two = (service([right, wrong], [study] * 2)["total"].tolist() for study in studies)
    assert one == two
    assert one[0] == pytest.approx(3.0)
    assert one[1] < 1
