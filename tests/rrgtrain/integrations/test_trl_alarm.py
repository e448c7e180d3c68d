"""Which settings of TRL keep the alarm from comparing, and that it says so once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rrgtrain.integrations.trl_alarm import SamplerAlarm, reshaping

PLAIN = {"temperature": 0.9, "top_p": 0.95, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, None),
        ({"top_k": -1, "min_p": 0.0}, None),
        ({"generation_kwargs": {"stop": ["x"], "seed": 1, "top_p": 0.95}}, None),
        ({"top_k": 20, "generation_kwargs": {"top_k": 0}}, None),
        ({"top_k": 20}, "top_k=20"),
        ({"min_p": 0.1}, "min_p=0.1"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex='a+'"),
        ({"generation_kwargs": {"presence_penalty": 0.5}}, "presence_penalty=0.5"),
        ({"generation_kwargs": {"temperature": 0.5}}, "temperature=0.5"),
        ({"generation_kwargs": {"min_tokens": 4}}, "min_tokens=4"),
    ],
)
def test_a_setting_that_the_trainer_does_not_know(
    settings: dict[str, Any], line: str | None
) -> None:
    assert reshaping(SimpleNamespace(**PLAIN | settings)) == line


def test_it_is_told_once_and_nothing_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(
        args=SimpleNamespace(**PLAIN | {"top_k": 20}),
        accelerator=SimpleNamespace(is_main_process=True),
    )
    alarm = SamplerAlarm(trainer)
    for _ in range(2):
        trainer._buffered_inputs = [{"sampling_per_token_logps": torch.zeros(1, 1)}]
        alarm.on_pre_optimizer_step()
    assert capsys.readouterr().err == (
        "rrgtrain: sampler and trainer are not compared: top_k=20 changes the sampler's log-probs "
        "and not the trainer's; leave it out to compare them\n"
    )
