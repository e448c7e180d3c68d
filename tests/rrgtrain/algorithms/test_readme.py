"""The algorithm in the README is the one that runs, and it stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import rrgtrain.algorithms
from rrgtrain.algorithms import Objective, build_algorithm
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import accumulate, gradients, groups_of, recipe

README = Path(rrgtrain.algorithms.__file__).with_name("README.md").read_text(encoding="utf-8")
SAMPLED = [["Edema.", "Clear lungs."], ["The heart is enlarged and so on.", "No."]]


@pytest.fixture
def rescue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.strip().splitlines()) <= 40
    (tmp_path / "rescue.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return "rescue:build"


def test_it_joins_weighs_and_trains(rescue: str) -> None:
    cfg = recipe(f"rl.algorithm={rescue}", "rl.beta=0")
    policy = tiny_policy()
    algorithm = build_algorithm(cfg)
    assert (algorithm.name, algorithm.sampled, algorithm.needs_reports) == ("rescue", 4, True)
    given = groups_of(policy, SAMPLED, edited=False)
    groups, counts = algorithm.complete(given, 0, policy.codec.reencode_from)
    assert counts == {"rescue/joined": 1.0}
    assert [[m.origin for m in g.members] for g in groups] == [
        ["sampled", "sampled", "reference"],
        ["sampled", "sampled"],
    ]
    assert groups[0].members[2].text == groups[0].study.report
    objective = algorithm.advantages(groups, torch.tensor([0.0, 0.6, 1.0, 0.2, 0.1]))
    assert isinstance(objective, Objective) and objective.weight is not None
    lengths = [len(m.ids) for g in groups for m in g.members]
    assert objective.weight.sum() == sum(n + min(n, 8) for n in lengths)
    update = accumulate(policy, None, groups, objective, algorithm.loss, cfg.rl)
    assert update.metrics["scored_tokens"] == sum(lengths)
    assert any(g.any() for g in gradients(policy).values())


def test_every_function_that_the_table_names_is_there() -> None:
    for module, name in re.findall(r"`(base|ditpo|orapo|editgrpo)\.(\w+)", README):
        found = __import__(f"rrgtrain.algorithms.{module}", fromlist=[name])
        assert hasattr(found, name), f"{module}.{name}"
    folder = Path(rrgtrain.algorithms.__file__).parents[1]
    for file in re.findall(r"`([\w/]+\.py)`", README):
        places = (
            folder / "algorithms" / file,
            folder / file,
            folder.parent / file,
            folder.parents[1] / file,
        )
        assert any(place.is_file() for place in places), file


def test_the_settings_that_it_names_exist() -> None:
    for setting in set(re.findall(r"`((?:rl|edit)\.\w+=\w+)`", README)):
        recipe(setting)
