"""Test that what data, group or endpoint lack for a recipe is told before the first step."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rrgtrain.cli import main
from tests.rrgtrain.common import SMALL_POLICY, phantoms

STEPS = ["sft.steps=1", "sft.batch=2", "rl.steps=1", "rl.prompts=2", "eval.bootstrap=5"]


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Reports alone: no images beside them, no labels, and in one split no entity either."""
    root = tmp_path / "data"
    root.mkdir()
    annotation = json.loads((phantoms() / "annotation.json").read_text())
    for entries in annotation.values():
        for entry in entries:
            entry.pop("labels", None)
    (root / "annotation.json").write_text(json.dumps(annotation))
    return root


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a demo that is refused; nothing was trained and nothing stays in the way."""
    out = Path("run")
    given = ["demo", *words, "--out", str(out), *SMALL_POLICY, *STEPS]
    assert main(given) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("rrgtrain: "), captured.err
    left = [p.name for p in out.rglob("*") if p.is_file()]
    assert left in ([], ["run.lock"]), left
    return lines[0]


def of(root: Path, *more: str) -> list[str]:
    return ["data.source=iu_xray", f"data.root={root}", *more]


TEXT = "data.images=none"


@pytest.mark.parametrize(
    ("recipe", "more", "told"),
    [
        ("editgrpo", [], "not found"),
        (
            "mrg_r1",
            [TEXT, "reward.against=labels"],
            "sft.template asks for findings, but study phantom_train_000000 has no",
        ),
        ("nih", [TEXT, "data.source=iu_xray"], "has no labels, but reward.against=labels"),
        (
            "deer",
            [TEXT, "reward.against=labels"],
            "weighs tokens by the positive labels, but study phantom_train_000000 has none",
        ),
        ("editgrpo", [TEXT, "rl.group=1"], "rl.group is 1; wanted a value >= 2"),
        ("orapo", [TEXT, "rl.group=1"], "rl.group is 1; wanted a value >= 2"),
        ("editgrpo", [TEXT, "rl.group=7"], "rl.group=7 is odd, but EditGRPO pairs"),
        ("combined", [TEXT, "rl.group=7"], "rl.group=7 is odd, but EditGRPO pairs"),
        ("orapo", [TEXT, "data.balanced=100000"], "data.balanced=100000, but there are"),
        (
            "deer",
            [TEXT, "eval.best_by=sample_f"],
            "eval.best_by=sample_f is no metric of an evaluation; did you mean sample_f1?",
        ),
        ("deer", [TEXT, "data.subset=none.json"], "data.subset: no file none.json; make one"),
    ],
    ids=str,
)
def test_what_is_lacking(
    recipe: str, more: list[str], told: str, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if recipe == "orapo" and "balanced" not in str(more):
        more = [*more, "data.balanced=null"]
    assert told in refused(capsys, recipe, *of(bare, *more))


def test_reports_without_entities_to_edit_towards(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bare / "annotation.json"
    annotation = json.loads(path.read_text())
    for entries in annotation.values():
        for entry in entries:
            entry["report"] = "asdf qwer."
    path.write_text(json.dumps(annotation))
    told = refused(capsys, "editgrpo", *of(bare, TEXT))
    assert "the extractor finds none in the first" in told and "rl.algorithm=dr_grpo" in told


@pytest.mark.parametrize("term", ["facts", "green"])
def test_an_endpoint_that_is_down(
    term: str, nobody: str, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"reward.options={{{term}: {{endpoint: '{nobody}/v1', model: m, tries: 1}}}}"
    words = of(bare, TEXT, f"reward.terms={{{term}: 1.0}}", options)
    assert f"{term} failed: {nobody}/v1" in refused(capsys, "dr_grpo", *words)


def test_a_rollout_server_that_is_down(
    nobody: str, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rollout.engine=vllm_server", f"rollout.url={nobody}", "rollout.wait=0.3"]
    told = refused(capsys, "dr_grpo", *of(bare, TEXT, *words))
    assert f"no answer from vLLM at {nobody}/health" in told


def test_a_rollout_engine_that_is_not_installed(
    bare: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rrgpolicy.rollout.vllm_engine.find_spec", lambda name: None)
    told = refused(capsys, "dr_grpo", *of(bare, TEXT, "rollout.engine=vllm"))
    assert "vllm is not installed" in told
