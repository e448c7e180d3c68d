"""Test that a recipe's options of models reach them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.radgraph import CachedGraphs
from rrgtrain.config import dump_config, load_config
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.term_models import open_extractor
from rrgtrain.schema import Recipe, RewardSettings
from tests.rrgclinical.chexbert import tiny
from tests.rrgclinical.radgraph import archives

RECIPE = """
reward:
  labeller: chexbert
  terms: {label_f1: 1.0, bleu2: 0.25}
  starts: {bleu2: 0.8}
  options:
    chexbert: {weights: nowhere/chexbert.pth, token_budget: 64}
    facts: {endpoint: "http://host/v1", model: m, timeout: 2.5}
"""


def test_options_are_read_from_a_recipe_and_overrides(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    overrides = ["reward.options.chexbert.weights=elsewhere.pth", "reward.options.new.x=[1, 2]"]
    recipe = load_config(Recipe, tmp_path / "mine.yaml", overrides)
    assert recipe.reward.options == {
        "chexbert": {"weights": "elsewhere.pth", "token_budget": 64},
        "facts": {"endpoint": "http://host/v1", "model": "m", "timeout": 2.5},
        "new": {"x": [1, 2]},
    }
    assert recipe.reward.starts == {"bleu2": 0.8}
    dump_config(recipe, tmp_path / "dumped.yaml")
    assert load_config(Recipe, tmp_path / "dumped.yaml", []) == recipe
    with pytest.raises(UserError, match="labeller chexbert: no file elsewhere.pth"):
        RewardService(recipe.reward)


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
    reports = tiny.reports(6)
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
    references = ["Heart size is normal. No pneumothorax.", "Small left effusion.", "Edema.", ""]
    radgraph = service.model("radgraph").radgraph
    wanted = radgraph.f1(reports, references)
    for level in ("simple", "partial", "complete"):
        settings.radgraph_level = level
        found = service(reports, references)["radgraph"].tolist()
        assert found == [getattr(f1, level) for f1 in wanted]
        assert found[2:] == [0.0, 0.0]
    assert service.model("radgraph").results.computed == 5
    # references are on disk for the next run, with everything the score reads
    again = CachedGraphs(radgraph, cache=settings.cache)
    assert again.annotate(references) == radgraph.annotate(references)
    assert (again.results.from_disk, again.results.computed) == (4, 0)
