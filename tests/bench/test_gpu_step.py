"""The steps of the paper's recipe on random weights, rehearsed at a tiny size."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

from bench import gpu_step, rows


def test_the_real_size_is_that_of_the_model(tmp_path):
    gpu_step.checkpoint(tmp_path, True, "cpu")
    config = gpu_step.real_size(AutoConfig.from_pretrained(tmp_path))
    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    assert model.num_parameters() == 3_754_622_976  # of Qwen2.5-VL-3B-Instruct
    text = config.text_config
    assert len(text.layer_types) == text.num_hidden_layers == 36
    assert text.hidden_size // text.num_attention_heads == 128


@pytest.mark.slow
def test_two_steps_leave_a_row(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    monkeypatch.delenv("RRGKERN_ROWS", raising=False)
    given = ["--tiny", "--steps", "2", "--prompts", "2", "--tokens", "8"]
    assert gpu_step.main(given) == 0, capfd.readouterr().out
    (row,) = (json.loads(line) for line in (tmp_path / "cpu.jsonl").read_text().splitlines())
    assert row["steps"] == 2 and row["provider"] == "paper/editgrpo"
    assert min(row[f"seconds/{phase}"] for phase in ("rollout", "reward", "update")) > 0
    assert row["peak_mib"] > 0 and 0 <= row["sampler/gap_mean"] < 0.1


def test_without_a_gpu_the_real_size_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_step.main([]) == 2
    assert "no GPU here" in capsys.readouterr().out
