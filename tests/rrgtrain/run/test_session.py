"""Opening data, policy and rewards of a recipe, in an order that wastes nothing on bad input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from rrgdata.load import open_studies
from rrgtrain.errors import UserError
from rrgtrain.run.checked import check_policy
from rrgtrain.run.session import session_of, start_policy
from rrgtrain.run.stages import Stages
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY, phantoms, recipe

SMALL = [*OF_PHANTOM, *SMALL_POLICY]


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def phantom(tmp_path: Path) -> Path:
    """A copy of the phantoms that a test may spoil."""
    return Path(shutil.copytree(phantoms(), tmp_path / "phantoms"))


def sizes(studies: dict) -> dict[str, int]:
    return {split: len(kept) for split, kept in studies.items()}


def test_phantoms_are_written_below_the_run_and_used_again(tmp_path: Path) -> None:
    cfg = recipe(*SMALL)
    assert sizes(open_studies(cfg.data, tmp_path / "run")) == {"train": 8, "val": 3, "test": 4}
    stamp = (tmp_path / "run" / "data" / "annotation.json").stat().st_mtime_ns
    open_studies(cfg.data, tmp_path / "run")
    assert (tmp_path / "run" / "data" / "annotation.json").stat().st_mtime_ns == stamp


def test_data_root_limit_and_images(tmp_path: Path) -> None:
    root = f"data.root={phantoms()}"
    cfg = recipe(*SMALL, root, "data.limit=2", "data.images=none")
    found = open_studies(cfg.data, tmp_path / "run")
    assert sizes(found) == {"train": 2, "val": 2, "test": 2}
    assert not any(s.images for s in found["train"])
    assert not (tmp_path / "run").exists()


def test_the_tiny_policy_is_built_from_seed_and_data_alone(tmp_path: Path) -> None:
    cfg = recipe(*SMALL, f"data.root={phantoms()}")
    studies = open_studies(cfg.data, tmp_path)
    states = []
    for name in ("a", "b"):
        torch.rand(3)  # what happened before does not matter
        policy, _ = start_policy(cfg, studies, tmp_path / name, resume=False)
        states.append(policy.model.state_dict())
    assert all(torch.equal(v, states[1][k]) for k, v in states[0].items())
    seeded = recipe(*SMALL, "policy.seed=1")
    other, _ = start_policy(seeded, studies, tmp_path / "c", resume=False)
    assert any(not torch.equal(v, states[0][k]) for k, v in other.model.state_dict().items())


def test_a_frozen_tower_has_seen_as_much_as_one_that_trains(tmp_path: Path) -> None:
    towers = []
    for frozen in ("false", "true"):
        asked = ["policy.warmup_steps=2", f"policy.freeze_vision={frozen}"]
        cfg = recipe(*SMALL, f"data.root={phantoms()}", *asked)
        studies = open_studies(cfg.data, tmp_path)
        policy, _ = start_policy(cfg, studies, tmp_path / frozen, resume=False)
        assert policy.vision_frozen == (frozen == "true")
        towers.append(policy.visual.state_dict())
    assert all(torch.equal(value, towers[1][name]) for name, value in towers[0].items())


def test_a_session_evaluates_and_validates(tmp_path: Path) -> None:
    cfg = recipe(*SMALL, f"data.root={phantoms()}", "eval.limit=2")
    session = session_of(cfg, tmp_path, sft=True)
    assert len(session.evaluate(session.split("test")).studies) == 4
    assert "micro_f1" in session.validator()()
    session.studies["val"] = []
    asked = []
    session.evaluate = lambda studies: asked.append(studies) or session  # type: ignore
    session.metrics = dict  # type: ignore[attr-defined]
    session.validator()()
    assert asked == [session.studies["train"][:2]]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def test_images_that_are_not_read_are_not_looked_at(phantom: Path, tmp_path: Path) -> None:
    cut(next(phantom.glob("images/*test_000003/*.png")))
    limited = recipe(*SMALL, f"data.root={phantom}", "eval.limit=2")
    session_of(limited, tmp_path / "a")
    without = recipe(*SMALL, f"data.root={phantom}", "data.images=none")
    session_of(without, tmp_path / "b")


def test_fresh_phantoms_are_not_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr("rrgtrain.run.data.check_images", lambda *a: looked.append(a))
    cfg = recipe(*SMALL, "policy.warmup_steps=0")
    session_of(cfg, tmp_path)
    assert not looked
    session_of(cfg, tmp_path)
    assert len(looked) == 1


def test_flex_attention_is_refused_where_it_has_no_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first update would end in a page of the compiler's; sampling and scoring need none."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    settings = recipe(*SMALL, "policy.attn=flex")
    with pytest.raises(UserError, match="policy.attn=flex has no backward on a CPU"):
        Stages.open(settings, tmp_path / "run", rl=True)
    assert not (tmp_path / "run").exists()
    assert check_policy(settings) is None
