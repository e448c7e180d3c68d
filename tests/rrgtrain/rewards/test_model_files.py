"""All model files that a recipe lacks are told at once; terms are measured beside the reward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rrgtrain.config import load_config
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe, RewardSettings
from tests.rrgclinical.radgraph import archives


def test_one_line_names_every_file_of_a_paper_recipe() -> None:
    settings = load_config(Recipe, "paper/editgrpo", []).reward
    with pytest.raises(UserError) as told:
        RewardService(settings)
    line = str(told.value)
    assert line.startswith("4 model files are missing: ") and "\n" not in line
    for key in ("chexbert.weights", "radgraph.weights", "ratescore.ner", "ratescore.embedder"):
        assert f"reward.options.{key} (" in line


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


def test_terms_are_measured_that_weigh_nothing(tmp_path: Path) -> None:
    archive = archives.write_archive(tmp_path)
    settings = RewardSettings(
        terms={"label_f1": 1.0}, options={"radgraph": {"weights": str(archive)}}
    )
    service = RewardService(settings)
    reports, references = ["No effusion.", ""], ["No effusion.", "Large heart."]
    names = ["radgraph_simple", "radgraph_partial", "radgraph_complete", "green", "entity_f1"]
    found = dict(service.measure(names, reports, references))
    assert list(found) == names
    levels = service.model("radgraph").radgraph.f1(reports, references)
    for level in ("simple", "partial", "complete"):
        wanted = [getattr(one, level) for one in levels]
        np.testing.assert_allclose(found[f"radgraph_{level}"], wanted)
    # each text once, however many levels
    assert service.model("radgraph").results.computed == 3
    np.testing.assert_allclose(found["entity_f1"], [1.0, 0.0])
    assert isinstance(found["green"], RewardError) and "endpoint" in str(found["green"])
