"""Data, policy and rewards open in an order that wastes nothing; bad models are one line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rrgdata.load import open_studies
from rrgpolicy.model import load, prompt
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run.checked import check_policy
from rrgtrain.run.session import start_policy
from rrgtrain.run.stages import Stages
from tests.rrgpolicy.model.common import text_directory
from tests.rrgpolicy.model.sighted import checkpoint
from tests.rrgtrain.common import ALL_STUDIES, OF_PHANTOM, SMALL_POLICY, phantoms, recipe

pytestmark = pytest.mark.usefixtures("at_home")

SMALL = [*OF_PHANTOM, *SMALL_POLICY]
DATA = ["data.source=iu_xray", f"data.root={phantoms()}", *ALL_STUDIES]
STEPS = ["sft.steps=1", "sft.batch=2", "rl.steps=1", "rl.prompts=2", "eval.bootstrap=5"]


def _configured(name: str, model: str | None = None) -> Callable[[Path], None]:
    """A checkpoint of a class of transformers, as far as its configuration."""

    def write(place: Path) -> None:
        config = getattr(transformers, f"{name}Config")()
        config.architectures = [model or f"{name}ForConditionalGeneration"]
        config.save_pretrained(place)

    return write


def _text(*, without: str = "") -> Callable[[Path], None]:
    def write(place: Path) -> None:
        shutil.copytree(text_directory(), place, dirs_exist_ok=True)
        if without:
            (place / without).unlink()

    return write


MODELS: dict[str, tuple[Callable[[Path], None], str]] = {
    "encoder-decoder": (_configured("T5"), "a t5 predicts no next token; name a language model"),
    "its decoder": (_configured("Bart", "BartForCausalLM"), "a bart is an encoder-decoder; name"),
    "one that sees": (_configured("Florence2"), "a florence2 is an encoder-decoder"),
    "cross-attention": (_configured("Mllama"), "a mllama reads images by cross-attention"),
    "processor": (_configured("Mistral3"), r"the images of a mistral3 are prepared by \w+"),
    "no template": (_text(without="chat_template.jinja"), "chat_template is not set"),
    "images": (_text(), r"has \d image\(s\), but a Qwen2ForCausalLM reads text alone; pass data"),
}


def refusal(capsys: pytest.CaptureFixture[str], start: Path, *words: str) -> str:
    """The one line of a demo with this model; nothing of a training is left."""
    out = start.parent / "run"
    made = ["demo", "--out", str(out), *SMALL_POLICY, *STEPS, f"policy.path={start}", *words]
    capsys.readouterr()
    assert main(made) == 2
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if not line.startswith("rrgtrain: warning")]
    assert len(told) == 1 and told[0].startswith("rrgtrain: "), lines
    assert not [*out.rglob("*.safetensors")]
    return told[0]


def test_each_kind_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for name, (write, line) in MODELS.items():
        place = tmp_path / name / "model"
        place.mkdir(parents=True)
        write(place)
        told = refusal(capsys, place, *DATA, *(["data.images=none"] if name != "images" else []))
        if not re.search(line, told):
            wrong.append(f"{name}: {told}")
    assert not wrong, "\n".join(wrong)


def test_quantised_weights_are_refused_at_load(tmp_path, capsys):
    """They loaded, `check` said that the whole model trains, and the first forward failed."""
    pytest.importorskip("bitsandbytes")
    for bits in (4, 8):
        place = tmp_path / str(bits) / "model"
        place.mkdir(parents=True)
        _text()(place)
        config = json.loads((place / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "bitsandbytes", f"load_in_{bits}bit": True}
        (place / "config.json").write_text(json.dumps(config))
        told = refusal(capsys, place, *DATA, "data.images=none")
        assert "is quantised (bitsandbytes), and such weights take no gradient; name the" in told
        assert main(["check", str(place)]) == 1
        assert capsys.readouterr().out.startswith("model: REFUSED: ")


def test_weights_that_are_dequantised_at_load_have_the_dtype_asked_for(tmp_path: Path) -> None:
    """Those in fp8 came in bfloat16 beside others in fp32, and the first forward failed."""
    pytest.importorskip("accelerate")
    _text()(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for key in [k for k in weights if ".layers." in k and k.endswith("_proj.weight")]:
        weights[key] = weights[key].to(torch.float8_e4m3fn)
        weights[f"{key}_scale_inv"] = torch.ones(1, 1)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "dequantize": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    policy = load.load_policy(tmp_path)
    assert {weight.dtype for weight in policy.model.parameters()} == {torch.float32}
    policy.model(input_ids=torch.tensor([[3, 4]]))


def test_a_prompt_beyond_what_was_probed_stops_before_a_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rrgpolicy.model.probe.window_of", lambda text: 9000)
    monkeypatch.setitem(prompt._ASKS, "think", "Reason first. " * 400)
    start = checkpoint("qwen3")
    words = [*DATA, "data.images=none", "policy.prompt=think"]
    made = ["demo", "--out", str(tmp_path / "run"), *STEPS, f"policy.path={start}", *words]
    assert main(made) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "tokens, and sharing was probed up to" in told and "use policy.sharing=none" in told
    assert not [*(tmp_path / "run").rglob("*.safetensors")]


@pytest.mark.parametrize(("source", "learned"), [("phantom", True), ("iu_xray", False)])
def test_a_word_of_few_patients_is_not_learned(source: str, learned: bool, tmp_path: Path) -> None:
    cfg = recipe(*SMALL, f"data.root={phantoms()}")
    studies = open_studies(cfg.data, tmp_path)
    studies["train"][0] = replace(studies["train"][0], report="Call Zyxwvuts. " * 200)
    cfg = replace(cfg, data=replace(cfg.data, source=source))
    policy, _ = start_policy(cfg, studies, tmp_path / "run", resume=False)
    assert any("yxwv" in token for token in policy.tokenizer.get_vocab()) == learned


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


def test_flex_attention_is_refused_where_it_has_no_backward(tmp_path, monkeypatch):
    """The first update would end in a page of the compiler's; sampling and scoring need none."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    settings = recipe(*SMALL, "policy.attn=flex")
    with pytest.raises(UserError, match="policy.attn=flex has no backward on a CPU"):
        Stages.open(settings, tmp_path / "run", rl=True)
    assert not (tmp_path / "run").exists()
    assert check_policy(settings) is None
