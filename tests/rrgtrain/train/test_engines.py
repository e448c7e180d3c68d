"""Engines by name, installed ones, and those of the user's own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from rrgpolicy.rollout import SamplingRequest, TransformersEngine, sampling
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.train.engines import build_engine, find_engine, require_engine
from tests.rrgpolicy.model.common import prompt, tiny_policy
from tests.rrgtrain.common import recipe

OWN = """
from rrgpolicy.rollout import TransformersEngine

class Counted(TransformersEngine):
    asked = 0

    def generate(self, policy, request):
        self.asked += 1
        return super().generate(policy, request)

def build(recipe, policy, directory):
    return Counted()

def fails(recipe, policy, directory):
    raise OSError("no such socket")

def none(recipe, policy, directory):
    return {"name": "mine"}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "an_engine.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    return "an_engine"


def test_an_engine_of_ones_own_samples(own: str, tmp_path: Path) -> None:
    policy, words = tiny_policy(), recipe(f"rollout.engine={own}:build")
    require_engine(words.rollout, tmp_path)
    engine: Any = build_engine(words, policy, tmp_path)
    request = SamplingRequest(
        [prompt(policy, "s", 1)], group=2, max_new_tokens=4, seeds=[[1, 2]], temperature=1.0
    )
    with sampling(engine, policy, 0) as gathered:
        (reports,) = engine.generate(gathered, request)
        (ours,) = TransformersEngine().generate(gathered, request)
    assert engine.asked == 1
    assert [r.ids.tolist() for r in reports] == [r.ids.tolist() for r in ours]


def test_an_installed_engine_is_found_by_its_entry_point(own: str, tmp_path: Path) -> None:
    info = tmp_path / "somebodys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rrgtrain.engines]\ntheirs = {own}:build\n")
    assert find_engine("theirs").__name__ == "build"
    with pytest.raises(UserError, match="did you mean theirs.*vllm_server, theirs, or your own as"):
        find_engine("their")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("an_engine:fails", "rollout.engine=an_engine:fails failed: .*no such socket.*; define it"),
        (
            "an_engine:none",
            "returned a dict; return an rrgpolicy.rollout.RolloutEngine: own_kernels",
        ),
        ("an_engine:gone", "an_engine.py has no gone; define it as a function of the recipe, the "),
        ("vlm", "'vlm' is unknown; did you mean vllm"),
    ],
)
@pytest.mark.usefixtures("own")
def test_what_is_wrong_is_told_in_one_line(name: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        build_engine(recipe(f"rollout.engine='{name}'"), tiny_policy(), tmp_path)
    assert "\n" not in str(caught.value)
    status = main(["plan", "demo", "--gpu", "cpu", "rollout.engine=vlm"])
    assert status == 2, "a plan is not made for a misspelt engine"
