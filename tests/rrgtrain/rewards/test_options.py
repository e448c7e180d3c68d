"""A recipe's options of models reach them; the blocks of MRG-R1 and their quarters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgclinical.backends import absent_files
from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.radgraph import CachedGraphs
from rrgclinical.stress import NOTHING
from rrgdata.study import Study
from rrgtrain.errors import UserError
from rrgtrain.rewards import TERMS, RewardService
from rrgtrain.rewards.batch import parse_blocks
from rrgtrain.rewards.term_models import open_extractor
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.chexbert import tiny
from tests.rrgclinical.radgraph import archives


@pytest.fixture(scope="module")
def chexbert(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tiny.write_folder(tmp_path_factory.mktemp("chexbert"))
    return {"weights": folder / "weights.pth", "tokenizer": folder, "config": tiny.CONFIG}


def test_chexbert_labels_for_the_rewards(chexbert: dict[str, object]) -> None:
    settings = RewardSettings(
        terms={"label_f1": 1.0, "mccs": 1.0}, labeller="chexbert", device="cpu"
    )
    settings.options = {"chexbert": {**chexbert, "token_budget": 77}}
    service = RewardService(settings)
    labeller = service.labeller.labeller
    assert isinstance(labeller, CheXbertLabeller)
    assert (labeller.token_budget, labeller.device.type) == (77, "cpu")
    reports = [text for text in tiny.reports(7) if text]
    assert service.labeller.label(reports).tolist() == labeller.label(reports).tolist()
    found = service(reports, reports)
    positive = (labeller.label(reports) % 2 == 1).any(1)
    assert found["label_f1"].tolist() == positive.astype(float).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weigths": "x"},
            r"labeller chexbert: unknown option 'weigths' \(did you mean weights\?\)",
        ),
        ({"weights": "x", "device": "cuda:77"}, "device 'cuda:77' is not there"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RewardService(RewardSettings(labeller="chexbert", options={"chexbert": options}))
    with pytest.raises(UserError, match="extractor rules: unknown option 'x'; it takes no options"):
        open_extractor(RewardSettings(options={"rules": {"x": 1}}))


def test_radgraph_f1_is_a_term(tmp_path: Path) -> None:
    archive = archives.write_archive(tmp_path / "files")
    settings = RewardSettings(
        terms={"radgraph": 1.0},
        options={"radgraph": {"weights": str(archive)}},
        device="cpu",
        cache=str(tmp_path / "cache"),
    )
    service = RewardService(settings)
    reports = ["Heart size is normal. No effusion.", "Small left effusion.", "", "Edema."]
    references = ["Heart size is normal. No pneumothorax.", "Small left effusion.", "Edema.", "No."]
    radgraph = service.model("radgraph").radgraph
    wanted = radgraph.f1(reports, references)
    for level in ("simple", "partial", "complete"):
        settings.radgraph_level = level
        found = service(reports, references)["radgraph"].tolist()
        assert found == [getattr(f1, level) for f1 in wanted]
        assert found[2:] == [0.0, 0.0]
    assert service.model("radgraph").results.computed == 6
    # references are on disk for the next run, with everything the score reads
    again = CachedGraphs(radgraph, cache=settings.cache)
    assert again.annotate(references) == radgraph.annotate(references)
    assert (again.results.from_disk, again.results.computed) == (4, 0)


# Weights, progress and references that are none are refused in a line.
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


def test_files_that_are_there_and_names_of_the_hub_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(b"")
    options = {
        "chexbert": {"weights": str(tmp_path / "x.pth")},
        "ratescore": {"ner": "Angelakeke/RaTE-NER-Deberta", "embedder": str(tmp_path / "gone")},
        "radgraph": {"weights": "~/nowhere/radgraph-xl.tar.gz"},
    }
    settings = RewardSettings(
        labeller="chexbert", extractor="ratescore", terms={"radgraph_simple": 1}, options=options
    )
    with pytest.raises(UserError) as told:
        RewardService(settings)
    line = str(told.value)
    assert line.startswith("2 model files are missing: ")
    assert "ratescore.embedder=" in line and "radgraph.weights=~/nowhere" in line
    assert "chexbert" not in line and "ratescore.ner" not in line


GOOD = "<think>a</think><report>b</report>"


@pytest.mark.parametrize(
    ("text", "format_reward", "report"),
    [
        (GOOD, 1.0, "b"),
        (f"x {GOOD} y", 1.0, "b"),
        ("<think>\na\n</think>\n\n<report>\n b c \n</report>", 1.0, "b c"),
        ("b", 0.0, None),
        ("<report>b</report>", 0.0, "b"),
        ("<think>a</think><report>b", 0.0, None),
        ("<think>a<report>b</report>", 0.0, "b"),
        ("</report>b<report><think>a</think>", 0.0, None),
        # present, balanced, filled, but the other way round
        ("<report>b</report><think>a</think>", 0.75, "b"),
        # interleaved: `</think>` comes after `<report>`
        ("<think>a<report>b</think>c</report>", 0.75, "b</think>c"),
        # a tag too many
        (f"{GOOD}</report>", 0.75, "b"),
        (f"{GOOD}<report>c</report>", 0.75, "b"),
        # an empty block
        ("<think></think><report>b</report>", 0.75, "b"),
        ("<think>a</think><report> \n</report>", 0.75, ""),
        # two faults, three faults
        ("<report></report><think>a</think>", 0.5, ""),
        ("<report></report><think></think></think>", 0.25, ""),
        ("<THINK>a</THINK><REPORT>b</REPORT>", 0.0, None),
    ],
)
def test_blocks(text: str, format_reward: float, report: str | None) -> None:
    found = parse_blocks(text)
    assert (found.format, found.report) == (format_reward, report)


# A report that says nothing earns what the empty one does, by every term without a model file.


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
