"""`rrgtrain check`: a line each of what a run does with a model, and what would refuse it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rrgpolicy.rollout import TransformersEngine
from rrgtrain.cli import main
from rrgtrain.errors import Stopped
from rrgtrain.run import model_check
from tests.rrgpolicy.model.checkpoints import checkpoint
from tests.rrgpolicy.model.common import OPENS, text_directory
from tests.rrgpolicy.model.sighted import sighted
from tests.rrgpolicy.rollout import stub_vllm

NAMES = ["model", "codec", "end of turn", "template", "adapter", "frozen", "images", "sharing"]
NAMES += ["engine"]


def told(
    capsys: pytest.CaptureFixture[str], start: str | Path, *words: str
) -> tuple[int, dict[str, str]]:
    """The exit status, and the lines by their names."""
    capsys.readouterr()
    status = main(["check", str(start), *words])
    return status, dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())


def test_each_thing_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["policy.freeze_vision=true", "policy.lora.rank=4"]
    status, lines = told(capsys, checkpoint("qwen3_vl"), *words)
    assert status == 0 and [*lines] == NAMES
    assert lines["model"].startswith("Qwen3VLForConditionalGeneration, 252 k parameters, float32")
    assert lines["codec"] == "byte-level BPE, 405 ids; decode() agrees"
    assert lines["end of turn"] == "<|im_end|>, by the chat template"
    # of four layers and two blocks, each projection; 56 x 56 pixels in 7 x 7 patches, 4 a token
    assert lines["adapter"].startswith("rank 4 on 28 modules: q_proj x 4, k_proj x 4")
    assert lines["frozen"].startswith("tower and projector (101 k) and the language model but")
    assert lines["images"] == "12 tokens for a radiograph of 2,500 x 2,048 pixels"
    assert lines["sharing"].startswith("prompts are shared by a packed row with ")
    gap = float(lines["engine"].split("differ by ")[1].split()[0])
    assert 0 <= gap < 1e-5 and "4 reports of 2 prompts with images" in lines["engine"]


def test_a_model_of_text_with_nothing_frozen(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = told(capsys, text_directory(), "data.images=none")
    assert status == 0 and [*lines] == NAMES
    assert lines["frozen"] == "nothing" and lines["images"] == "none, it reads text alone"
    assert lines["adapter"].startswith("none, the whole model trains")
    assert lines["end of turn"].endswith("; <|endoftext|> ends one too when sampled")


def test_it_says_where_training_and_the_template_part(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    start = shutil.copytree(text_directory(), tmp_path / "thinks")
    (start / "chat_template.jinja").write_text(OPENS)
    words = ["data.images=none", "rollout.engine=transformers"]
    status, lines = told(capsys, start, *words)
    whole = "prompt, answer and end of turn are as it writes a conversation"
    assert status == 0 and lines["template"] == f"{whole}, with enable_thinking=false"
    status, lines = told(capsys, start, *words, "policy.chat_template_kwargs.enable_thinking=true")
    assert status == 0 and lines["template"].startswith("IT PARTS, with enable_thinking=true: ")
    assert r"training writes 'The heart is normal.<|im_end|>', and" in lines["template"]
    assert r"itself '\n</think>\n\nThe heart" in lines["template"]
    status, lines = told(capsys, start, *words, "policy.chat_template_kwargs={thinks: true}")
    assert status == 1 and "reads no thinks; leave it out" in lines["template"]


def test_what_a_run_refuses_is_status_1_and_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, lines = told(capsys, tmp_path)
    assert status == 1 and lines == {
        "model": f"REFUSED: {tmp_path} holds no config.json; name a checkpoint directory"
    }
    status, lines = told(capsys, checkpoint("qwen3"), "rollout.engine=vllm")
    assert status == 1 and "REFUSED: rollout.engine=vllm, but vllm is not" in lines["engine"]
    status, lines = told(capsys, sighted("llava_onevision"), "rollout.engine=vllm_server")
    assert status == 1 and "of a llava_onevision change each other's tokens" in lines["model"]
    words = ["rollout.engine=vllm", "data.max_images=1", "policy.min_pixels=null"]
    status, lines = told(capsys, sighted("llava_onevision"), *words, "policy.max_pixels=null")
    assert lines["model"].startswith("LlavaOnevision") and "vllm is not" in lines["engine"]
    words = ["rollout.engine=vllm_server", "data.images=none", "policy.min_pixels=null"]
    words += ["rollout.url=http://127.0.0.1:1"]
    monkeypatch.setattr(model_check, "PATIENCE", 0.0)
    status, lines = told(capsys, sighted("llava_onevision"), *words, "policy.max_pixels=null")
    assert lines["model"].startswith("LlavaOnevision")
    assert status == 1 and "REFUSED: no answer from vLLM at http://127.0.0.1:1/" in lines["engine"]
    status, lines = told(capsys, checkpoint("qwen3_5"), "rollout.engine=vllm", "policy.device=cpu")
    assert status == 1 and "in bf16 alone; set policy.dtype=bfloat16" in lines["model"]
    stub_vllm.install(monkeypatch)
    status, lines = told(capsys, checkpoint("granite"), "rollout.engine=vllm")
    assert (
        status == 1
        and "REFUSED: rollout.engine=vllm, but vLLM 0.0 has no Granite" in lines["model"]
    )
    status, lines = told(capsys, text_directory(), "policy.sharing=cache", "policy.attn=dense")
    assert status == 0 and lines["sharing"].startswith("prompts are shared by a prefix cache")
    real = TransformersEngine.generate

    def colder(engine: Any, policy: Any, request: Any) -> Any:
        return real(engine, policy, replace(request, temperature=0.5))

    monkeypatch.setattr(TransformersEngine, "generate", colder)
    status, lines = told(capsys, text_directory())
    assert status == 1 and [*lines] == NAMES
    assert "REFUSED: trainer and sampler differ by" in lines["engine"]
    assert "likely another temperature" in lines["engine"]
    assert main(["check", str(text_directory()), "policy.shared=1"]) == 2


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"eos_token_id": 99999}', "eos_token_id 99999; wanted a token id or a list of them, one"),
        ('{"eos_token_id": [1, -1]}', "eos_token_id [1, -1]; wanted a token id"),
        ('{"eos_token_id": ', "generation_config.json cannot be read (Expecting value"),
        ("", "generation_config.json cannot be read (Expecting value"),
        ("[]", "model: REFUSED: "),
    ],
)
def test_ends_of_a_report_that_no_token_has(
    content: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a torn file was passed over in silence, and reports ended at other tokens
    place = tmp_path / "model"
    shutil.copytree(text_directory(), place)
    (place / "generation_config.json").write_text(content)
    assert main(["check", str(place), "data.images=none"]) == 1
    (refusal,) = capsys.readouterr().out.splitlines()
    assert line in refusal and refusal.startswith("model: REFUSED: ")


def test_a_signal_is_no_verdict_on_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise Stopped("stopped by SIGTERM")

    for name in ("load_for", "_codec"):
        with monkeypatch.context() as patch:
            patch.setattr(model_check, name, cut)
            assert main(["check", str(text_directory())]) == Stopped.status
            assert "REFUSED" not in capsys.readouterr().out
