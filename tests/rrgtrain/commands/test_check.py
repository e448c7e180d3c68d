"""`rrgtrain check` of a model a line each, and `rrgtrain stress` of planted errors and of pairs."""

from __future__ import annotations

import csv
import html
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rrgpolicy.rollout import TransformersEngine
from rrgtrain.cli import main
from rrgtrain.errors import Stopped
from rrgtrain.run import model_check
from tests.rrgpolicy.model.common import OPENS, text_directory, tiny_policy
from tests.rrgpolicy.model.sighted import checkpoint, sighted
from tests.rrgpolicy.rollout.served import stub_vllm

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
    assert lines["codec"] == "405 ids; decode() agrees"
    assert lines["end of turn"] == "<|im_end|>, by the chat template"
    # of four layers and two blocks, each projection; 56 x 56 pixels in 7 x 7 patches, 4 a token
    assert lines["adapter"].startswith("rank 4 on 28 modules: q_proj x 4, k_proj x 4")
    assert lines["frozen"].startswith("tower and projector (101 k) and the language model but")
    assert lines["images"] == "12 tokens for a radiograph of 2,500 x 2,048 pixels"
    assert lines["sharing"].startswith("prompts are shared by a packed row with ")
    gap = float(lines["engine"].split("differ by ")[1].split()[0])
    assert 0 <= gap < 1e-5 and "4 reports of 2 prompts with images" in lines["engine"]


def test_it_says_where_training_and_the_template_part(capsys, tmp_path):
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


def test_what_a_run_refuses_is_status_1_and_a_line(capsys, monkeypatch, tmp_path):
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
    stub_vllm(monkeypatch)
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
        ('{"eos_token_id": ', "generation_config.json cannot be read (Expecting value"),
        ("[]", "model: REFUSED: "),
    ],
)
def test_ends_of_a_report_that_no_token_has(content, line, tmp_path, capsys):
    # a torn file was passed over in silence, and reports ended at other tokens
    place = tmp_path / "model"
    shutil.copytree(text_directory(), place)
    (place / "generation_config.json").write_text(content)
    assert main(["check", str(place), "data.images=none"]) == 1
    (refusal,) = capsys.readouterr().out.splitlines()
    assert line in refusal and refusal.startswith("model: REFUSED: ")


def test_a_signal_is_no_verdict_on_the_model(capsys, monkeypatch):
    def cut(*_: Any, **__: Any) -> None:
        raise Stopped("stopped by SIGTERM")

    for name in ("load_for", "_codec"):
        with monkeypatch.context() as patch:
            patch.setattr(model_check, name, cut)
            assert main(["check", str(text_directory())]) == Stopped.status
            assert "REFUSED" not in capsys.readouterr().out


FEW = ["--studies", "20", "data.phantom.train=120"]


def line_of(out: str, begin: str) -> list[str]:
    return next(line for line in out.split("\n") if line.startswith(begin)).split()


def test_tables_and_strict(tmp_path, capsys, monkeypatch):
    both = ["reward.terms={severity: 1, match: 1}", "--strict"]
    assert main(["stress", *FEW, *both]) == 1  # match charges for true denials
    out = capsys.readouterr().out
    assert float(line_of(out, "wrong side  ")[-2]) < float(line_of(out, "unchanged")[-2]) == 1
    assert "severity: 'true denials" not in out and "match: 'true denials added' costs more" in out
    shares = line_of(out, "4 any harmless change")[-2].split("/")
    assert int(shares[0]) >= 99
    assert line_of(out, "empty  ")[-2] == "0.000" and "every finding hedged" in out
    assert "no radiologist has set them" in out
    assert main(["stress", *FEW, "reward.terms={severity: 1}", "--strict"]) == 0

    (tmp_path / "words.py").write_text(
        "def count(report, reference):\n    return len(report) / (1 + len(reference))\n"
        "def fails(report, reference):\n    return 1 / len(report)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["stress", *FEW, "reward.terms={words:count: 1}"]) == 0
    assert "words:count" in capsys.readouterr().out
    assert main(["stress", *FEW, "reward.terms={words:fails: 1}"]) == 2
    assert "an empty report stops a run: reward term words:fails" in capsys.readouterr().err


def pairs_file(tmp_path, preferred):
    path = tmp_path / "pairs.csv"
    rows = [
        ("Left pleural effusion.", "Left pleural effusion.", "Right pneumothorax."),
        ("Edema.", "No edema.", "Mild edema."),
        ("Granuloma. Mass.", "Granuloma.", "Mass."),
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["reference", "first", "second", "preferred"])
        writer.writerows(
            [*row, how] for row, how in zip(rows[: len(preferred)], preferred, strict=True)
        )
    return str(path)


def test_numbers_that_mean_which_report_are_refused(tmp_path, capsys, refusal):
    # 2 for "the second" was read as: the first is better by 2
    line = refusal("stress", "--against", pairs_file(tmp_path, ["1", "2", "2"]))
    assert "preferred holds 1 and 2 alone; wanted first, second, tie" in line
    assert main(["stress", "--against", pairs_file(tmp_path, ["1", "0", "-2"])]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 pairs: first better in 1, second in 1, 1 tied; tau-b")
    assert main(["stress", "--against", pairs_file(tmp_path, ["1"])]) == 0
    assert capsys.readouterr().out.startswith("1 pair: first better in 1,")


def test_own_pairs(tmp_path, capsys, refusal):
    words = ["reward.terms={severity: 1}"]
    path = pairs_file(tmp_path, ["first", "second", "-2"])
    assert main(["stress", "--against", path, *words]) == 0
    assert line_of(capsys.readouterr().out, "severity ")[1:4] == ["3", "0", "0"]
    path = pairs_file(tmp_path, ["second", "second", "tie"])
    assert main(["stress", "--against", path, *words]) == 0
    assert line_of(capsys.readouterr().out, "severity ")[1:4] == ["1", "1", "0"]
    for preferred, line in (
        (["first", "", "tie"], "pairs.csv:3: preferred is missing"),
        (["first", "better", "tie"], "preferred is 'better'"),
        (["tie", "tie", "tie"], "has no pair with a preference"),
    ):
        assert line in refusal("stress", "--against", pairs_file(tmp_path, preferred), *words)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"second": None}, "second is missing"),
        ({"first": ["Edema."]}, "first is no text"),
        ({"reference": " "}, "reference is blank"),
    ],
)
def test_a_pair_without_a_text_is_no_pair(tmp_path, refusal, change, line):
    # each was scored: null as an empty report, a list as its Python form
    whole = {"reference": "Edema.", "first": "Edema.", "second": "", "preferred": "first"}
    path = tmp_path / "pairs.jsonl"
    words = ["stress", "--against", str(path), "reward.terms={severity: 1}"]
    path.write_text(json.dumps(whole) + "\n")
    assert main(words) == 0  # an empty report is one
    path.write_text(f"{json.dumps(whole)}\n{json.dumps({**whole, **change})}\n")
    assert f"pairs.jsonl:2: {line}; wanted" in refusal(*words)


def test_words_that_would_do_nothing_are_refused(tmp_path, refusal):
    pairs = pairs_file(tmp_path, ["first", "second", "tie"])
    for idle in (["--strict"], ["--reports", pairs]):
        line = refusal("stress", "--against", pairs, *idle)
        assert "--against plants no errors; leave out" in line


def test_a_report_or_a_table_of_no_end_is_refused_at_once(tmp_path, refusal):
    rows = [{"reference": "Edema.", "first": "Edema.", "second": "", "preferred": "first"}] * 2
    rows[1] = {**rows[1], "second": "Edema " * 50_000}
    pairs, reports = tmp_path / "pairs.jsonl", tmp_path / "reports.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reports.write_text(json.dumps({"id": 1, "report": rows[1]["second"]}) + "\n")
    table = tmp_path / "table.yaml"
    table.write_text("#" * 2**21)
    severity = ["reward.terms={severity: 1}"]
    for words, line in (
        (["--against", str(pairs)], "pairs.jsonl:2: second has 300,000 characters; wanted at most"),
        (["--reports", str(reports)], "reports.jsonl:1: 'report' has 299,999 characters; wanted"),
        (
            [f"reward.options={{severity: {{table: {table}}}}}"],
            "characters; wanted at most 1,048,576); write it as the packaged",
        ),
    ):
        assert line in refusal("stress", *FEW, *severity, *words)


def test_one_image_and_its_report_are_a_page(tmp_path, capsys):
    films, page, out = tmp_path / "films", tmp_path / "a.html", tmp_path / "reports.jsonl"
    films.mkdir()
    Image.linear_gradient("L").save(films / "a.png")
    start, small = str(tmp_path / "policy"), ["policy.prompt=short", "eval.max_new_tokens=6"]
    tiny_policy().save(start)
    assert main(["generate", start, str(films), "--out", str(out), *small]) == 0
    report = json.loads(out.read_text(encoding="utf-8"))["report"]
    words = ["--from", start, *small, "--out"]
    assert main(["show", str(films / "a.png"), *words, str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert report in html.unescape(text)
    assert 'src="data:image/png;base64,' in text and "for research only" in text
    (films / "broken.png").write_bytes((films / "a.png").read_bytes()[:60])
    for image in ("broken.png", "none.png"):
        assert main(["show", str(films / image), *words, str(tmp_path / "b.html")]) == 2
        assert image in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "b.html").exists()
    before = out.read_bytes()
    assert main(["show", str(films / "a.png"), *words, str(out)]) == 2
    assert out.read_bytes() == before
