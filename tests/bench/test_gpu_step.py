"""The runs of a GPU, rehearsed on a CPU.

The short one: what it measures and in what order. Steps of the paper's recipe: on random weights,
at a tiny size.
"""

from __future__ import annotations

import json
import os
import re
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

from bench import gpu_short, gpu_step, rows
from rrgkern.logps import triton_from_hidden


def test_the_real_size_is_that_of_the_model(tmp_path):
    gpu_step.checkpoint(tmp_path, None, "cpu")
    config = gpu_step.real_size(AutoConfig.from_pretrained(tmp_path), gpu_step.LAYERS)
    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    assert model.num_parameters() == 3_754_622_976  # of Qwen2.5-VL-3B-Instruct
    text = config.text_config
    assert len(text.layer_types) == text.num_hidden_layers == 36
    assert text.hidden_size // text.num_attention_heads == 128
    fewer = gpu_step.real_size(AutoConfig.from_pretrained(tmp_path), 8)
    assert len(fewer.text_config.layer_types) == fewer.text_config.num_hidden_layers == 8
    assert fewer.vision_config.depth == 32


# What a machine for `make gpu` has, with its needs (bench/gpu_wheels.txt).
THERE = ("torch", "triton", "transformers", "pytest", "hypothesis", "pillow", "tensorboard")
WITHOUT = """
import os, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in os.environ["NOT_THERE"].split():
            return super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""


def needs(name: str, known: set[str]) -> set[str]:
    """A distribution and what it requires, extras left out, without those `known`."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in known:
        return known
    known = {*known, name}
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return known
    for line in required:
        if "extra ==" not in line:
            known = needs(re.split(r"[^\w.-]", line)[0], known)
    return known


@pytest.fixture
def _only_what_is_carried(tmp_path, monkeypatch):
    """Child processes import no package that a machine for `make gpu` lacks."""
    lines = Path(gpu_step.ROOT, "bench", "gpu_wheels.txt").read_text().splitlines()
    there: set[str] = set()
    for name in THERE:
        there = needs(name, there)
    # carried without their needs
    there |= {re.split("==", line)[0] for line in lines if line and line[0] != "#"}
    lacking = {
        module
        for module, names in metadata.packages_distributions().items()
        if not there & {re.sub(r"[-_.]+", "-", name).lower() for name in (*names, module)}
    }
    lacking -= {"rrgkern", "rrgclinical", "rrgdata.phantom", "rrgtrain"}
    assert "pycocoevalcap" in lacking and not lacking & {"torch", "numpy", "omegaconf"}
    folder = tmp_path / "carried"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT)
    monkeypatch.setenv("NOT_THERE", " ".join(lacking))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    )


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.usefixtures("_only_what_is_carried")
@pytest.mark.parametrize("more", [[], ["--unsaved"]], ids=["saved", "unsaved"])
def test_two_steps_leave_a_row(more, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    monkeypatch.delenv("RRGKERN_ROWS", raising=False)
    given = ["--tiny", "--steps", "2", "--prompts", "2", "--tokens", "8", *more]
    status = gpu_step.main(given)
    assert status == 0, "\n".join(capfd.readouterr())
    (row,) = (json.loads(line) for line in (tmp_path / "cpu.jsonl").read_text().splitlines())
    assert row["steps"] == 2 and row["provider"] == "paper/editgrpo"
    assert min(row[f"seconds/{phase}"] for phase in ("rollout", "reward", "update")) > 0
    assert row["peak_mib"] > 0 and 0 <= row["sampler/gap_mean"] < 0.1


def test_without_a_gpu_the_real_size_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_step.main([]) == 2
    assert "no GPU here" in capsys.readouterr().out


@pytest.fixture
def written(monkeypatch) -> list[dict]:
    appended: list[dict] = []
    monkeypatch.setattr(rows, "append", lambda device, row, folder: appended.append(row))
    return appended


def test_heads_come_first_then_logits_then_steps(written, capfd):
    assert gpu_short.main(["--dry"]) == 0
    heads, logits = written[:12], written[12:]
    assert {row["room"] for row in heads} == {"logps"}
    assert [row["provider"] for row in heads[:3]] == [
        "rrgkern",
        "rrgkern, tiles of 32 MiB",
        "torch.compile",
    ]
    assert len({row["case"] for row in heads}) == 4
    assert [row["provider"] for row in logits] == ["out of place", "in place"]
    for row in written:
        assert row["kernels"] > 0 and row["kernel_ms"] > 0 and row["p50_ms"] > 0
        assert row["kernel_ms"] >= sum(row["largest_ms"].values()) * 0.999
    assert "gpu_step.py --unsaved --steps 8" in capfd.readouterr().out.splitlines()[-1]


def test_nothing_is_begun_when_the_time_is_up(monkeypatch, written, capsys):
    monkeypatch.setattr(gpu_short, "SECONDS", -1)
    assert gpu_short.main(["--dry"]) == 1
    assert not written and "are up before short, 64 positions, frozen" in capsys.readouterr().out


def test_without_a_gpu_it_says_how_to_rehearse(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_short.main([]) == 2
    assert "rehearse with --dry" in capsys.readouterr().out


def test_small_tiles_have_32_mib_whatever_the_card(monkeypatch):
    device, tiles = torch.device("cuda", 0), triton_from_hidden.TILES
    for gib in (24, 80, 141):
        card = SimpleNamespace(total_memory=gib << 30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
        with gpu_short.small_tiles(device):
            small = triton_from_hidden.TILES.tiling.on(device).elements
        assert small * 4 == pytest.approx(32 << 20, rel=1e-2)
        assert triton_from_hidden.TILES is tiles
