"""A checkpoint that is not whole is refused in one line, and never scored."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import load_policy
from tests.pickled import RAN, Code
from tests.rrgpolicy.model.common import tiny_directory

WEIGHTS, ADAPTER, TEMPLATE = "model.safetensors", "adapter_model.safetensors", "chat_template.jinja"
QUERY = "model.language_model.layers.0.self_attn.q_proj.weight"
IN_FILE = QUERY.replace("model.language_model.", "model.")
Spoil = Callable[[Path], Any]


def tensors(change: Callable[[dict[str, torch.Tensor]], Any], file: str = WEIGHTS) -> Spoil:
    def spoil(directory: Path) -> None:
        state = load_file(directory / file)
        change(state)
        save_file(state, directory / file, metadata={"format": "pt"})

    return spoil


def settings(file: str, section: str | None = None, **changes: Any) -> Spoil:
    def spoil(directory: Path) -> None:
        held = json.loads((directory / file).read_text())
        (held[section] if section else held).update(changes)
        (directory / file).write_text(json.dumps(held))

    return spoil


def text(file: str, content: str) -> Spoil:
    return lambda directory: (directory / file).write_text(content)


def gone(file: str) -> Spoil:
    return lambda directory: (directory / file).unlink()


def cut(file: str, size: int) -> Spoil:
    return lambda directory: os.truncate(directory / file, size)


def pickled(old: str, new: str) -> Spoil:
    def spoil(directory: Path) -> None:
        (directory / old).unlink()
        torch.save({"weight": Code()}, directory / new)

    return spoil


def code_of_its_own(directory: Path) -> None:
    settings("config.json", auto_map={"AutoConfig": "own.Config"}, model_type="own")(directory)
    (directory / "own.py").write_text(f"open({str(directory / 'ran')!r}, 'w')\n")


def first(state: dict[str, torch.Tensor]) -> torch.Tensor:
    return state[min(state)].view(-1)[:1]


SPOILT = {
    "missing": (tensors(lambda s: s.pop(IN_FILE)), f"lacks weights: {QUERY}; copy the checkpoint"),
    "nan": (tensors(lambda s: s[IN_FILE][0].fill_(torch.nan)), f"{QUERY} holds NaN or infinity"),
    "shape": (
        tensors(lambda s: s.update({IN_FILE: torch.zeros(3, 3)})),
        f"{QUERY} is [3, 3], and config.json wants [64, 64]",
    ),
    "vocabulary": (
        settings("config.json", "text_config", vocab_size=100),
        "embed_tokens.weight is [405, 64], and config.json wants [100, 64]",
    ),
    "another layer": (
        tensors(lambda s: s.update({IN_FILE.replace("0", "9"): s[IN_FILE].clone()})),
        "has weights that config.json has no layer for: model.language_model.layers.9",
    ),
    "truncated": (cut(WEIGHTS, 5000), "SafetensorError"),
    "no weights": (gone(WEIGHTS), "cannot load"),
    "pickle": (
        pickled(WEIGHTS, "pytorch_model.bin"),
        "the file holds code (tests.pickled.run), which is never run",
    ),
    "no tokenizer": (gone("tokenizer.json"), "makes '' of 'No acute disease.'"),
    "no template": (gone(TEMPLATE), "chat_template is not set"),
    "hostile template": (
        text(TEMPLATE, "{{ ''.__class__.__mro__ }}"),
        "cannot load the chat template of",
    ),
    "a list": (text("config.json", "[[]]"), "cannot load"),
    "patches": (
        settings("preprocessor_config.json", patch_size=7),
        "patch_size of preprocessor_config.json is 7, and the vision tower of config.json wants 14",
    ),
    **{
        f"architectures {seen!r}": (
            settings("config.json", architectures=seen),
            f"config.json has architectures {seen!r}; wanted a list of names",
        )
        for seen in ("Qwen2_5_VLForConditionalGeneration", [7], {"a": 1}, 7)
    },
    **{
        f"end {seen!r}": (
            settings("generation_config.json", eos_token_id=seen),
            f"generation_config.json has eos_token_id {seen!r}; wanted a token id or a list",
        )
        for seen in ("<|im_end|>", [1, "2"], 1.5, True, {"a": 1}, [-1, 2], [9999])
    },
    **{
        f"area {seen!r}": (
            settings("preprocessor_config.json", size={"shortest_edge": 784, **seen}),
            "preprocessor_config.json bounds the pixels of an image by",
        )
        for seen in (
            *({"longest_edge": 2**28 + 1}, {"longest_edge": 0}, {"longest_edge": 1e5}),
            *({"longest_edge": True}, {"shortest_edge": -1, "longest_edge": 9999}),
        )
    },
    "code": (code_of_its_own, "it comes with code of its own, which is never run"),
}
SPOILT_ADAPTER = {
    "missing": (tensors(lambda s: s.pop(min(s)), ADAPTER), "lacks weights: base_model.model."),
    "nan": (tensors(lambda s: first(s).fill_(torch.nan), ADAPTER), "holds NaN or infinity"),
    "unexpected": (
        tensors(lambda s: s.update({"base_model.model.x.lora_A.weight": torch.zeros(1)}), ADAPTER),
        "has weights that its base has no place for: base_model.model.x",
    ),
    "shape": (tensors(lambda s: s.update({min(s): torch.zeros(3, 3)}), ADAPTER), "size mismatch"),
    "empty": (cut(ADAPTER, 0), "SafetensorError"),
    "gone": (gone(ADAPTER), "and no adapter_model.safetensors"),
    "pickle": (pickled(ADAPTER, "adapter_model.bin"), "the file holds code (tests.pickled.run)"),
    "settings": (text("adapter_config.json", "{"), "JSONDecodeError"),
    "no base": (settings("adapter_config.json", base_model_name_or_path=None), "names no base"),
}


def told(source: Path, spoil: Spoil, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The line for a spoilt copy, beside which nothing is printed, asked or run."""
    copy = Path(shutil.copytree(source, tmp_path / "copy"))
    spoil(copy)
    capfd.readouterr()
    with pytest.raises(UserError) as caught:
        load_policy(copy)
    captured = capfd.readouterr()
    assert "copy" in str(caught.value) and "\n" not in str(caught.value)
    assert captured.out == "" and "LOAD REPORT" not in captured.err and "[y/N]" not in captured.err
    assert RAN == []
    return str(caught.value)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    policy = load_policy(tiny_directory())
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    policy.model = peft.get_peft_model(policy.model, config)
    return policy.save(tmp_path_factory.mktemp("adapter") / "adapter")


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_checkpoint(spoilt: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spoil, line = SPOILT[spoilt]
    assert line in told(tiny_directory(), spoil, tmp_path, capfd)


@pytest.mark.parametrize("spoilt", SPOILT_ADAPTER)
def test_an_adapter(spoilt, adapter, tmp_path, capfd):
    spoil, line = SPOILT_ADAPTER[spoilt]
    assert line in told(adapter, spoil, tmp_path, capfd)


def test_an_adapter_of_itself(adapter: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(adapter, tmp_path / "copy"))
    settings("adapter_config.json", base_model_name_or_path=str(copy))(copy)
    with pytest.raises(UserError, match="another adapter; merge that one into its base"):
        load_policy(copy)


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_directory(), tmp_path / "copy"))
    tokenizer = load_policy(copy).tokenizer
    tokenizer.add_tokens([f"new{k}" for k in range(9)])
    tokenizer.save_pretrained(copy)
    with pytest.raises(UserError, match="has 414 tokens, and the model knows 405"):
        load_policy(copy)
