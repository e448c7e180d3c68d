"""RadCliQ-v1 and BERTScore as terms: higher is better, and their models are asked for at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rrgtrain.errors import UserError
from rrgtrain.rewards.model_files import missing_files
from rrgtrain.rewards.service import TERMS
from rrgtrain.rewards.term_models import open_model
from rrgtrain.schema import RewardSettings


def test_an_estimate_of_errors_is_a_reward_with_its_sign_turned() -> None:
    errors, alike = np.array([0.2, 3.0]), np.array([0.9, 0.1])
    models = {
        "radcliq": SimpleNamespace(score=lambda reports, references: errors),
        "bertscore": SimpleNamespace(f1=lambda reports, references: alike),
    }
    batch: Any = SimpleNamespace(reports=["a", "b"], references=["a", "c"], open=models.get)
    assert TERMS["radcliq"](batch).tolist() == [-0.2, -3.0]
    assert TERMS["bertscore"](batch).tolist() == [0.9, 0.1]


def test_the_files_of_all_three_models_are_asked_for() -> None:
    settings = RewardSettings(terms={"radcliq": 1.0})
    assert [line.split(" (")[0] for line in missing_files(settings)] == [
        f"reward.options.{name}.weights" for name in ("radgraph", "chexbert", "bertscore")
    ]
    lacking = missing_files(RewardSettings(terms={"bertscore": 1.0}))
    assert [line.split(" (")[0] for line in lacking] == ["reward.options.bertscore.weights"]
    for name in ("radcliq", "bertscore"):
        with pytest.raises(UserError, match="weights"):
            open_model(name, settings)
