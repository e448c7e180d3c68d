"""Real reports through extractor, match and plan, where they are at hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rrgclinical import build_extractor
from rrgkern import edit_plan
from rrgtrain.algorithms import sentence_entities
from tests.real_data import REAL
from tests.rrgdata.common import studies_under
from tests.rrgtrain.algorithms import real_edits

realdata = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data at {REAL}; set RRG_DATA")


def real_reports(count: int) -> list[str]:
    studies = studies_under("iu_xray", REAL / "iu_xray", images="none")["train"]
    return [study.report for study in studies if study.report][:count]


@pytest.mark.realdata
@realdata
def test_no_pair_of_reports_fails_and_every_fixed_point_is_clean():
    result = real_edits.run(real_reports(150))
    assert result.pairs == 150 and result.exact > 50
    assert result.unclean == []
    assert sum(result.one_edit.values()) + result.unchanged == 150
    assert set(result.fixed_point) >= {"c", "d"}
    assert 0.3 < result.mean_score < 1.0
    for read in real_edits.at_random(real_reports(150)).values():
        assert read.failed == [] and read.edited > 0.5 * read.pairs


REPORTS = [
    "The heart is enlarged. No pleural effusion.",
    "Small left pleural effusion. The heart is enlarged.",
    "No pneumothorax.",
    "No pneumothorax.",
]


def test_a_fixed_point_that_is_not_clean_is_found():
    entities = build_extractor("rules").extract(REPORTS)
    chosen = np.array([1, 0, 3, 2])
    x = sentence_entities(entities, {})
    y = real_edits.reordered(x, torch.as_tensor(chosen))
    script = edit_plan(x, y, seeds=torch.arange(4), max_edits=None)
    assert real_edits.unclean(entities, chosen, script) == []
    script.count[0] = 0
    assert real_edits.unclean(entities, chosen, script) == [0]


def test_each_report_meets_one_with_the_same_labels_or_the_nearest():
    labels = np.array([[1, 0, 0], [1, 2, 0], [1, 0, 0], [1, 0, 0], [2, 2, 2]])
    assert real_edits.partners(labels).tolist() == [2, 2, 3, 0, 1]
