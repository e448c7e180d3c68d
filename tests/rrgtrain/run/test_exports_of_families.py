"""Exports of other families load in transformers and write what the checkpoint writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForImageTextToText, GenerationConfig

from rrgdata.images.read import read_image
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import add_lora
from rrgpolicy.model.prompt import encode_prompt
from rrgpolicy.model.whole import check_rounded
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run.export import Export, export_checkpoint, model_config
from rrgtrain.schema import LoraSettings
from tests.rrgpolicy.model.checkpoints import checkpoint
from tests.rrgpolicy.model.families import SORTS
from tests.rrgpolicy.model.sighted import PUBLISHED, sighted
from tests.rrgtrain.common import phantoms

FAMILIES = (*PUBLISHED, "qwen3_vl", "qwen3_5")
TOKENS = 8


def published(name: str) -> Path:
    return sighted(name) if name in PUBLISHED else checkpoint(name)


def adapted(name: str, directory: Path) -> Path:
    """An adapter that changes what is written."""
    policy = load_policy(published(name))
    add_lora(policy, LoraSettings(rank=2), 0)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(2)
        for key, weight in policy.model.named_parameters():
            if "lora_B" in key:
                weight.normal_(0, 0.5)
    return policy.save(directory)


def generated(start: Path, images: Path, out: Path) -> list[str]:
    """The reports that the command writes."""
    short = [f"eval.max_new_tokens={TOKENS}", "policy.prompt=short"]
    assert main(["generate", str(start), str(images), "--out", str(out), *short]) == 0
    return [json.loads(line)["report"] for line in out.read_text().splitlines()]


def by_transformers(model: Any, files: Path, images: Path) -> list[str]:
    """The reports of a model of transformers, decoded as its generation_config.json says."""
    policy, reports = load_policy(files), []
    assert policy.images is not None
    for path in sorted(images.iterdir()):
        study = Study("", "", None, None, (ImageRef(path, ""),))
        inputs = encode_prompt(
            policy, study, [read_image(path, policy.images.area)], style="short"
        ).inputs
        ids = model.generate(**inputs, max_new_tokens=TOKENS)[0, inputs["input_ids"].shape[1] :]
        # of bytes that are no UTF-8 the tokenizer makes other marks than the codec
        reports.append(policy.codec.decode(ids))
    return reports


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for path in sorted((phantoms() / "images").rglob("0.png"))[:2]:
        (folder / f"{path.parent.name}.png").symlink_to(path)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_an_export_loads_elsewhere_and_writes_the_same(
    name: str, tmp_path: Path, images: Path
) -> None:
    adapter = adapted(name, tmp_path / "adapter")
    merged, alone = tmp_path / "merged", tmp_path / "alone"
    export_checkpoint(Export(str(adapter), merged, "fp32", merge=True))
    export_checkpoint(Export(str(adapter), alone, "fp32"))
    own = generated(adapter, images, tmp_path / "own.jsonl")
    assert own != generated(published(name), images, tmp_path / "before.jsonl")
    assert generated(merged, images, tmp_path / "merged.jsonl") == own
    opened: Any = AutoModelForImageTextToText
    model, loading = opened.from_pretrained(merged, output_loading_info=True)
    assert not any(loading.values()), loading
    assert by_transformers(model, merged, images) == own
    base = AutoModelForImageTextToText.from_pretrained(published(name), dtype=torch.float32)
    base.generation_config = GenerationConfig.from_pretrained(alone)  # the hub's may sample
    assert by_transformers(PeftModel.from_pretrained(base, alone), alone, images) == own
    for directory in (merged, alone):
        files = {file.name for file in directory.iterdir()}
        assert files >= {"preprocessor_config.json", "chat_template.jinja", "tokenizer.json"}
        assert ("processor_config.json" in files) == (name in PUBLISHED)


def test_no_weight_becomes_infinite(tmp_path: Path) -> None:
    """fp16 ends at 65,504: a larger weight was written as infinity, without a word."""
    policy = load_policy(checkpoint("qwen3"))
    with torch.no_grad():
        policy.model.get_input_embeddings().weight[0, 0] = 70_000
    start = str(policy.save(tmp_path / "large"))
    with pytest.raises(UserError, match=r"embed_tokens.weight has values beyond float16; use bf16"):
        export_checkpoint(Export(start, tmp_path / "half", "fp16"))
    assert not (tmp_path / "half").exists()
    export_checkpoint(Export(start, tmp_path / "bf16"))
    # what was infinite before, and counts, are no weights beyond it
    counts = torch.nn.BatchNorm1d(2)
    counts.num_batches_tracked.fill_(70_000)
    counts.register_buffer("mask", torch.tensor(-torch.inf))
    check_rounded("counts", counts, torch.float16)
    # of an adapter alone nothing of its base is written
    add_lora(policy, LoraSettings(rank=2), 0)
    adapter = json.loads((policy.save(tmp_path / "a") / "adapter_config.json").read_text())
    adapter["base_model_name_or_path"] = start
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(adapter))
    export_checkpoint(Export(str(tmp_path / "a"), tmp_path / "alone", "fp16"))
    with pytest.raises(UserError, match="beyond float16"):
        export_checkpoint(Export(str(tmp_path / "a"), tmp_path / "merged", "fp16", merge=True))


def test_an_older_reader_meets_the_rope_and_transformers_reads_the_same() -> None:
    wrong = []
    for name, sort in SORTS.items():
        of_text = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}
        parts = {"text_config": {**of_text, **sort.text}, "vision_config": sort.vision or {}}
        own = getattr(transformers, sort.config)(**(parts if sort.sees else of_text | sort.text))
        written = json.loads(own.to_json_string())
        config = model_config(json.loads(own.to_json_string()))
        before, after = (
            json.loads(type(own).from_dict(c).to_json_string()) for c in (written, config)
        )
        text = config.get("text_config", config)
        rope = own.get_text_config().rope_parameters
        theta = rope.get("full_attention", rope)["rope_theta"]
        if before != after or text["rope_theta"] != theta:
            wrong.append(name)
    assert not wrong
