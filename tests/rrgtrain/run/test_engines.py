"""`eval`, `select`, `sft` with the recipe's engine, and what does not fit told before any image."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from rrgtrain.cli import main
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgpolicy.rollout.served import CHAT, Served
from tests.rrgtrain.common import OF_PHANTOM, phantoms

DATA = [*OF_PHANTOM, f"data.root={phantoms()}", "policy.prompt=short", "eval.meteor=false"]
SMALL = ["eval.split=train", "eval.limit=3", "eval.batch=2", "eval.max_new_tokens=6"]
SMALL += ["eval.bootstrap=20", "select.samples=2", "select.batch=2", "select.share=0.5"]
SMALL += ["rl.max_new_tokens=6"]
START = ["--from", str(tiny_directory())]


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.mark.parametrize(
    ("verb", "asked", "file"),
    [("eval", 3, "predictions.jsonl"), ("select", 8, "sampled.jsonl")],
)
def test_a_server_writes_what_the_trainer_writes(
    verb: str, asked: int, file: str, tmp_path: Path
) -> None:
    with Served(tiny_directory()) as server:
        for engine in ("transformers", "vllm_server"):
            words = [verb, *START, "--out", str(tmp_path / engine), *DATA, *SMALL]
            assert main([*words, f"rollout.engine={engine}", f"rollout.url={server.url}"]) == 0
        assert server.asked[CHAT] >= asked, "more where it had to be asked again"
    own, served = (tmp_path / engine / file for engine in ("transformers", "vllm_server"))
    assert served.read_bytes() == own.read_bytes()
    assert not (tmp_path / "vllm_server" / "served").exists()


def test_fine_tuning_validates_with_the_engine(tmp_path: Path) -> None:
    words = ["sft", "--out", str(tmp_path / "run"), *DATA, *SMALL, "eval.limit=1", "sft.steps=1"]
    words += ["sft.batch=2", f"policy.path={tiny_directory()}", "rollout.engine=vllm_server"]
    with Served(tiny_directory()) as server:
        assert main([*words, f"rollout.url={server.url}"]) == 0
        assert server.asked[CHAT] >= 2, "its validation, and the evaluation"


@pytest.mark.parametrize("verb", ["eval", "select", "generate", "sft"])
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["rollout.engine=vllm_server", "rollout.url=http://127.0.0.1:9"], "no answer from vLLM"),
        (["rollout.engine=vllm", "rollout.max_model_len=16"], "lower the first or raise"),
    ],
)
def test_an_engine_that_does_not_fit_is_one_line_before_any_image_is_read(
    verb: str,
    settings: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("an image is read"))
    more = ["rollout.wait=0", "eval.max_new_tokens=16", "rl.max_new_tokens=16", *settings]
    words = [verb, *START, "--out", str(tmp_path / "out"), *DATA]
    if verb == "generate":
        words = [verb, str(tiny_directory()), str(phantoms()), "--out", str(tmp_path / "out")]
    if verb == "sft":
        words = [verb, "--out", str(tmp_path / "out"), *DATA, f"policy.path={tiny_directory()}"]
    assert main([*words, *more]) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("verb", ["sft", "rl", "eval", "select", "generate"])
def test_help_says_how_several_gpus_are_used(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"torchrun --nproc-per-node N -m rrgtrain {verb} ..." in shown
