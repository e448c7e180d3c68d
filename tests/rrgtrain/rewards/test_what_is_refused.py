"""Weights, progress and references that are none are refused in a line."""

from __future__ import annotations

import pytest

from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_weight_is_finite(weight: float) -> None:
    with pytest.raises(UserError, match=rf"^reward.terms.label_f1={weight}; wanted a finite"):
        RewardService(RewardSettings(terms={"label_f1": weight}))


def test_progress_is_a_share() -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    for progress in (float("nan"), -0.1, 1.5):
        with pytest.raises(ValueError, match=rf"^progress is {progress}; wanted a share"):
            service(["Edema."], ["Edema."], progress)


def test_one_text_is_no_list_of_references() -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    with pytest.raises(TypeError, match="^references is one str; wanted a sequence"):
        service(["Edema."] * 5, "Edema")
