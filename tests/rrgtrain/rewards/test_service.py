"""The service weighs terms, computes what they share once, and never hides a failure."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgclinical import build_extractor, build_labeller
from rrgdata.study import Study
from rrgtrain.config import load_config
from rrgtrain.errors import RewardError, Stopped, UserError
from rrgtrain.rewards import RewardBatch, RewardService
from rrgtrain.rewards import service as service_module
from rrgtrain.rewards.term_models import SpreadLabeller
from rrgtrain.schema import Recipe, RewardSettings

STUDIES = [Study(f"s{i}", "test", text, None, ()) for i, text in enumerate(["Edema.", "Clear."])]
REPORTS = ["Cardiomegaly. Edema.", "Lungs are clear."]


def plant(monkeypatch: pytest.MonkeyPatch, **terms: object) -> None:
    monkeypatch.setattr(service_module, "TERMS", {**service_module.TERMS, **terms})


def test_the_total_is_the_weighted_sum_of_the_terms() -> None:
    weights = {"label_f1": 2.0, "entity_f1": -0.5, "match": 0.25}
    found = RewardService(RewardSettings(terms=weights))(REPORTS, STUDIES)
    assert list(found) == ["total", *weights]
    assert all(v.shape == (2,) and v.dtype == np.float64 for v in found.values())
    np.testing.assert_allclose(found["total"], sum(w * found[k] for k, w in weights.items()))
    assert len(set(found["total"].tolist())) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_names_term_and_study(bad, monkeypatch):
    plant(monkeypatch, mine=lambda batch: np.array([1.0, bad]))
    service = RewardService(RewardSettings(terms={"label_f1": 1.0, "mine": 1.0}))
    with pytest.raises(RewardError, match=f"reward term mine gave {bad} for study s1$"):
        service(REPORTS, STUDIES)


def test_a_term_that_raises_stops_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batch: RewardBatch) -> np.ndarray:
        raise RuntimeError("the endpoint is down")

    plant(monkeypatch, mine=broken)
    service = RewardService(RewardSettings(terms={"label_f1": 1.0, "mine": 0.0}))
    wanted = (
        r"^reward term mine failed: RuntimeError: the endpoint is down \(test_service.py:\d+\)$"
    )
    with pytest.raises(RewardError, match=wanted) as caught:
        service(REPORTS, STUDIES)
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RewardError, match=wanted):
        service.submit(REPORTS, STUDIES).result(timeout=60)


def test_a_signal_is_no_failure_of_the_term_it_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scorecard would go on without the term, as it does where a term fails."""

    def stopped(*_: object, **__: object) -> np.ndarray:
        raise Stopped("stopped by SIGTERM")

    plant(monkeypatch, mine=stopped)
    service = RewardService(RewardSettings(terms={"mine": 1.0}))
    with pytest.raises(Stopped, match=r"^stopped by SIGTERM$"):
        list(service.measure(["mine"], REPORTS, REPORTS))
    monkeypatch.setattr(service.labeller, "label", stopped)
    with pytest.raises(Stopped, match=r"^stopped by SIGTERM$"):
        SpreadLabeller(service.labeller).label(REPORTS)


@pytest.mark.parametrize("value", [np.zeros(1), np.zeros((2, 1)), np.float64(0.0)])
def test_a_term_of_another_shape_is_refused(value, monkeypatch):
    plant(monkeypatch, mine=lambda batch: value)
    with pytest.raises(RewardError, match=r"reward term mine gave shape \(.*\), not \(2,\)"):
        RewardService(RewardSettings(terms={"mine": 1.0}))(REPORTS, STUDIES)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"terms": {"label_f1": 1.0, "labelf1": 1.0}},
            "'labelf1'; did you mean label_f1. choose from accuracy, bertscore, .*, or your own",
        ),
        ({"terms": {}}, "reward.terms is empty; choose from"),
        ({"labeller": "chexbart"}, "unknown labeller 'chexbart'"),
        ({"extractor": "radgrapf"}, "unknown extractor 'radgrapf'"),
        ({"starts": {"bleu2": 0.8}}, "reward.starts names 'bleu2', which is no term of this recip"),
        ({"starts": {"label_f1": 1.5}}, "reward.starts.label_f1=1.5; wanted a share of the steps"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        RewardService(RewardSettings(**settings))


def test_reports_and_studies_must_pair() -> None:
    service = RewardService(RewardSettings())
    with pytest.raises(ValueError, match="1 reports for 2 studies; pass one each"):
        service(REPORTS[:1], STUDIES)
    nothing = Study("s1", "test", " N/A", (0,) * 14, ())
    for call in (service, service.submit, lambda _, studies: service.prefetch(studies)):
        for one in ("", nothing):
            with pytest.raises(ValueError, match=r"^references\[1\] is '.*', and no report is rig"):
                call(REPORTS, [STUDIES[0], one])


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


def test_what_terms_share_is_read_once_and_each_text_once() -> None:
    counted = Counted()
    terms = dict.fromkeys(("label_f1", "mccs", "entity_f1", "match"), 1.0)
    service = RewardService(RewardSettings(terms=terms), counted, counted)  # type: ignore[arg-type]
    first = service([*REPORTS, REPORTS[0]], [*STUDIES, STUDIES[0]])
    references = tuple(s.report for s in STUDIES)
    once = sorted((what, *t) for what in ("label", "extract") for t in (REPORTS, references))
    assert sorted(counted.asked) == once
    again = service(REPORTS[::-1], STUDIES[::-1])
    assert sorted(counted.asked) == once
    for name in first:
        assert first[name].tolist() == [*again[name][::-1], again[name][1]]
    assert len(set(first["total"][:2].tolist())) == 2
    assert service.statistics()["texts/labeller_asked"] == 10
    assert service.statistics()["texts/labeller_computed"] == 4


def test_a_term_weighs_nothing_before_its_start() -> None:
    settings = RewardSettings(terms={"label_f1": 1.0, "bleu2": 0.25}, starts={"bleu2": 0.8})
    service = RewardService(settings)
    for progress, weight in ((0.0, 0.0), (0.79, 0.0), (0.8, 0.25), (1.0, 0.25)):
        found = service(REPORTS, ["Cardiomegaly. Edema.", "Heart is normal."], progress)
        assert found["bleu2"][0] == pytest.approx(1.0)
        np.testing.assert_allclose(found["total"], found["label_f1"] + weight * found["bleu2"])


def test_only_the_report_block_is_scored() -> None:
    terms = {"label_f1": 0.75, "match": 1.0, "format": 0.25}
    service = RewardService(RewardSettings(terms=terms, blocks="think_report"))
    inside = "<think>No edema? Pneumothorax!</think><report>Cardiomegaly. Edema.</report>"
    found = service(
        [inside, "Cardiomegaly. Edema.", "<think>x</think><report>Cardiomegaly. Edema."],
        ["Cardiomegaly. Edema."] * 3,
    )
    assert found["label_f1"].tolist() == [1.0, 0.0, 0.0]
    # without entities `match` gives 0.5, but a report that was not written earns nothing
    assert found["match"].tolist() == pytest.approx([1.0, 0.0, 0.0])
    assert found["format"].tolist() == [1.0, 0.0, 0.0]
    assert service.scored_text([inside, "Edema."]) == ["Cardiomegaly. Edema.", ""]
    assert RewardService(RewardSettings()).scored_text([inside]) == [inside]


def test_submit_runs_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    released, threads = threading.Event(), set()

    def slow(batch: RewardBatch) -> np.ndarray:
        threads.add(threading.current_thread())
        assert released.wait(60)
        return np.ones(len(batch.studies))

    plant(monkeypatch, mine=slow)
    service = RewardService(RewardSettings(terms={"mine": 1.0}))
    futures = [service.submit(REPORTS, STUDIES), service.submit(REPORTS[:1], STUDIES[:1])]
    assert not any(future.done() for future in futures)
    released.set()
    assert [future.result(60)["total"].tolist() for future in futures] == [[1.0, 1.0], [1.0]]
    (worker,) = threads
    assert worker.name == "rewards_0" and worker.is_alive()
    service.close()
    assert not worker.is_alive()
    assert service.submit(REPORTS, STUDIES).result(60)["total"].tolist() == [1.0, 1.0]


def test_reading_ahead_asks_for_references_alone_and_scores_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A term that pays for every pair, as GREEN does, is not called for reports nobody wrote."""
    scored: list[int] = []

    def dear(batch: RewardBatch) -> np.ndarray:
        scored.append(len(batch.reports))
        return batch.reference_labels[:, 0].astype(float)

    plant(monkeypatch, dear=dear)
    counted = Counted()
    service = RewardService(RewardSettings(terms={"dear": 1.0}), counted, counted)  # type: ignore[arg-type]
    service(REPORTS, STUDIES)
    counted.asked.clear()
    service.prefetch(["Edema.", "Pneumothorax.", "Fracture.", "Edema."]).result(60)
    service.prefetch([]).result(60)
    assert scored == [2]
    assert counted.asked == [("label", "Pneumothorax.", "Fracture.")]


def test_references_of_earlier_runs_are_on_disk(tmp_path: Path) -> None:
    """By the digest of the model: another one's readings are not taken for its own."""

    class Model(Counted):
        def __init__(self, fingerprint: str) -> None:
            super().__init__()
            self.fingerprint = fingerprint

    settings = RewardSettings(terms={"label_f1": 1.0, "entity_f1": 1.0}, cache=str(tmp_path))

    def scored(fingerprint: str) -> tuple[dict[str, list[float]], Model, dict[str, float]]:
        model = Model(fingerprint)
        service = RewardService(settings, model, model)  # type: ignore[arg-type]
        values = service(REPORTS, STUDIES)
        return {k: v.tolist() for k, v in values.items()}, model, service.statistics()

    first, *_ = scored("one")
    again, model, row = scored("one")
    assert again == first
    assert sorted(model.asked) == [("extract", *REPORTS), ("label", *REPORTS)]
    for name in ("labeller", "extractor"):
        assert row[f"texts/{name}_from_disk"] == row[f"texts/{name}_computed"] == 2
    other, model, row = scored("two")
    assert other == first and len(model.asked) == 4 and row["texts/labeller_from_disk"] == 0


def test_what_fails_in_reading_ahead_is_raised_where_it_is_waited_for(monkeypatch):
    service = RewardService(RewardSettings(terms={"label_f1": 1.0}))
    service(REPORTS, STUDIES)
    monkeypatch.setattr(service.labeller, "label", lambda *_, **__: [][1])
    ahead = service.prefetch(["Fracture."])
    wanted = r"^reading reference labels failed: IndexError: list index out of range \(test_serv"
    with pytest.raises(RewardError, match=wanted):
        ahead.result(60)


def test_a_term_of_ones_own_is_named_by_module_and_function(tmp_path, monkeypatch):
    (tmp_path / "my_terms.py").write_text(
        "import numpy as np\n"
        "def length(batch):\n    return np.array([len(r) for r in batch.reports])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = RewardService(RewardSettings(terms={"my_terms:length": 0.5}))(REPORTS, STUDIES)
    assert found["total"].tolist() == [len(report) / 2 for report in REPORTS]
    with pytest.raises(UserError, match="my_terms.py has no lengths; define it"):
        RewardService(RewardSettings(terms={"my_terms:lengths": 1.0}))


def test_a_plain_function_of_report_and_reference_is_a_term(tmp_path, monkeypatch):
    name = f"plain_terms_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "def brevity(report, reference, scale=2.0):\n"
        "    return scale * len(report) / len(reference)\n"
        "def three(report, truth, study):\n    return 0.0\n"
        "def nothing(report, reference):\n    return None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    # as `reward.terms.NAME=1.0` sets it on the command line
    recipe = load_config(Recipe, None, [f"reward.terms.{name}:brevity=0.5"])
    assert recipe.reward.terms[f"{name}:brevity"] == 0.5 and "label_f1" in recipe.reward.terms
    only = RewardSettings(terms={f"{name}:brevity": 0.5})
    scores = RewardService(only)(["abc", ""], ["abcdef", "ab"])
    assert scores[f"{name}:brevity"].tolist() == [1.0, 0.0]
    assert scores["total"].tolist() == [0.5, 0.0]
    wanted = r"takes \(report, truth, study\); wanted a function of a RewardBatch, or of the texts"
    with pytest.raises(UserError, match=wanted):
        RewardService(RewardSettings(terms={f"{name}:three": 1.0}))
    failing = RewardService(RewardSettings(terms={f"{name}:nothing": 1.0}))
    with pytest.raises(RewardError, match=f"reward term {name}:nothing failed"):
        failing(["abc"], ["abc"])


def test_references_are_read_ahead_on_the_gpu_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread starts on GPU 0, where the models of the other ranks are not."""
    here = threading.local()
    here.device = 3
    seen: list[int] = []

    def reads(batch: RewardBatch) -> np.ndarray:
        seen.append(getattr(here, "device", 0))
        return np.zeros(len(batch.reports))

    plant(monkeypatch, mine=reads)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: here.device)
    chosen = lambda device: setattr(here, "device", device)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "set_device", chosen)
    RewardService(RewardSettings(terms={"mine": 1.0})).prefetch(STUDIES).result()
    assert seen == [3]
