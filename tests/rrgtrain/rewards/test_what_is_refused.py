"""Weights, progress and references that are none are refused in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_weight_is_finite(weight: float) -> None:
    with pytest.raises(UserError, match=rf"^reward.terms.label_f1={weight}; wanted a finite"):
        RewardService(RewardSettings(terms={"label_f1": weight}))


def test_progress_is_a_share() -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    for progress in (float("nan"), -0.1, 1.5, None, "0.5", True, 1j, [0.5], np.array([0.2, 0.5])):
        with pytest.raises(ValueError, match="^progress is .*; wanted a share") as caught:
            service(["Edema."], ["Edema."], progress)  # type: ignore[arg-type]
        assert repr(progress) in str(caught.value)
    for progress in (0, 1, np.float32(0.5), np.array(0.5), torch.tensor(0.5)):
        assert service(["Edema."], ["Edema."], progress)["total"] == [1.0]  # type: ignore[arg-type]


# A set and a mapping have members, but none is that of a report.
ODD = [None, 5, 0.5, "Edema.", b"Edema.", {"Edema.": 1}, {"Edema."}, np.array("Edema."), [None]]
ODD += [[b"Edema."], [["Edema."]], [{"report": "Edema."}], [float("nan")]]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_is_no_list_of_texts_is_told_by_every_door(odd: Any) -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    doors: dict[str, Callable[[], object]] = {
        "reports": lambda: service(odd, ["Edema."]),
        "references": lambda: service(["Edema."], odd),
        "reports of submit": lambda: service.submit(odd, ["Edema."]),
        "references of submit": lambda: service.submit(["Edema."], odd),
        "references of prefetch": lambda: service.prefetch(odd),
        "reports of measure": lambda: list(service.measure(["label_f1"], odd, ["Edema."])),
        "studies of fit": lambda: service.fit(odd),
    }
    for name, door in doors.items():
        with pytest.raises(TypeError, match=rf"^{name.split()[0]}(\[0\])? is .*; wanted "):
            door()


def test_texts_come_one_by_one_from_anything_that_has_an_order() -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    texts = ["Edema.", "Clear."]
    whole = service(texts, texts)["total"].tolist()
    for form in (tuple(texts), iter(texts), np.array(texts), dict(enumerate(texts)).values()):
        assert service(form, texts)["total"].tolist() == whole  # type: ignore[arg-type]


def test_one_text_is_no_list_of_references() -> None:
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    with pytest.raises(TypeError, match="^references is one str; wanted a sequence"):
        service(["Edema."] * 5, "Edema")
