"""The service weighs terms, computes what they share once, and never hides a failure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rrgtrain.clinical import build_extractor, build_labeller
from rrgtrain.data.study import Study
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards import service as service_module
from rrgtrain.rewards.batch import RewardBatch
from rrgtrain.schema import Reward

STUDIES = [Study(f"s{i}", "test", text, None, ()) for i, text in enumerate(["Edema.", "Clear."])]
REPORTS = ["Cardiomegaly. Edema.", "Lungs are clear."]


def plant(monkeypatch: pytest.MonkeyPatch, **terms: object) -> None:
    monkeypatch.setattr(service_module, "TERMS", {**service_module.TERMS, **terms})


def test_the_total_is_the_weighted_sum_of_the_terms() -> None:
    weights = {"label_f1": 2.0, "entity_f1": -0.5, "match": 0.25}
    found = RewardService(Reward(terms=weights))(REPORTS, STUDIES)
    assert list(found) == ["total", *weights]
    assert all(v.shape == (2,) and v.dtype == np.float64 for v in found.values())
    np.testing.assert_allclose(found["total"], sum(w * found[k] for k, w in weights.items()))
    assert len(set(found["total"].tolist())) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_names_term_and_study(
    bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, mine=lambda batch: np.array([1.0, bad]))
    service = RewardService(Reward(terms={"label_f1": 1.0, "mine": 1.0}))
    with pytest.raises(UserError, match=f"reward term mine gave {bad} for study s1$"):
        service(REPORTS, STUDIES)


def test_a_term_that_raises_stops_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batch: RewardBatch) -> np.ndarray:
        raise RuntimeError("the endpoint is down")

    plant(monkeypatch, mine=broken)
    with pytest.raises(RuntimeError, match="the endpoint is down"):
        RewardService(Reward(terms={"label_f1": 1.0, "mine": 0.0}))(REPORTS, STUDIES)


@pytest.mark.parametrize("value", [np.zeros(1), np.zeros((2, 1)), np.float64(0.0)])
def test_a_term_of_another_shape_is_refused(
    value: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, mine=lambda batch: value)
    with pytest.raises(ValueError, match=r"reward term mine gave shape \(.*\), not \(2,\)"):
        RewardService(Reward(terms={"mine": 1.0}))(REPORTS, STUDIES)


def test_unknown_terms_are_named_with_the_choices() -> None:
    with pytest.raises(UserError, match="names 'labelf1'; choose from entity_f1, label_f1, match"):
        RewardService(Reward(terms={"label_f1": 1.0, "labelf1": 1.0}))
    with pytest.raises(UserError, match="reward.terms is empty; choose from"):
        RewardService(Reward(terms={}))


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(UserError, match="unknown labeller 'chexbart'"):
        RewardService(Reward(labeller="chexbart"))
    with pytest.raises(UserError, match="unknown extractor 'radgrapf'"):
        RewardService(Reward(extractor="radgrapf"))


def test_reports_and_studies_must_pair() -> None:
    with pytest.raises(ValueError, match="1 reports for 2 studies; pass one each"):
        RewardService(Reward())(REPORTS[:1], STUDIES)


class Counted:
    """A labeller and extractor that remember how often they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.labeller, self.extractor = build_labeller("rules"), build_extractor("rules")

    def label(self, reports: Sequence[str]) -> np.ndarray:
        self.asked.append(("label", *reports))
        return self.labeller.label(reports)

    def extract(self, reports: Sequence[str]) -> object:
        self.asked.append(("extract", *reports))
        return self.extractor.extract(reports)


def test_what_terms_share_is_found_once() -> None:
    counted = Counted()
    terms = dict.fromkeys(("label_f1", "mccs", "entity_f1", "match"), 1.0)
    service = RewardService(Reward(terms=terms), counted, counted)  # type: ignore[arg-type]
    service(REPORTS, STUDIES)
    references = tuple(s.report for s in STUDIES)
    assert sorted(counted.asked) == sorted(
        (what, *texts) for what in ("label", "extract") for texts in (REPORTS, references)
    )


def test_seconds_are_kept_per_term() -> None:
    service = RewardService(Reward(terms={"label_f1": 1.0, "match": 1.0}))
    service(REPORTS, STUDIES)
    assert set(service.seconds) == {"label_f1", "match"}
    assert all(seconds > 0 for seconds in service.seconds.values())
