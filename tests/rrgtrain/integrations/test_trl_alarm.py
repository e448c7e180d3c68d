"""A sampler that draws from another distribution is not compared, which is told once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rrgtrain.integrations.trl_alarm import SamplerAlarm

PLAIN = {"temperature": 0.9, "top_p": 0.95, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


@pytest.mark.parametrize("own", [{"top_k": 20}, {"generation_kwargs": {"top_k": 20}}], ids=str)
def test_it_is_told_once_and_nothing_is_computed(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = SimpleNamespace(
        args=SimpleNamespace(**{"generation_kwargs": None} | PLAIN | own),
        accelerator=SimpleNamespace(is_main_process=True),
    )
    alarm = SamplerAlarm(trainer)
    for _ in range(2):
        trainer._buffered_inputs = [{"sampling_per_token_logps": torch.zeros(1, 1)}]
        alarm.on_pre_optimizer_step()
    assert capsys.readouterr().err == (
        "rrgtrain: sampler and trainer are not compared: top_k=20 changes the sampler's log-probs "
        "alone; leave it out to compare them\n"
    )
