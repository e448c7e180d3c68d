"""The alarm by itself: a toy policy whose sampler has one fault at a time."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from rrgpolicy.sampler_alarm import (
    LINES,
    PASSES,
    Run,
    gap_row,
    gaps,
    mean_gap,
    reshaped_by,
    sampler_alarm,
)

TOKENS, IDS = 240, 17
LIMIT = 1e-3


def part(seed: int) -> Tensor:
    return torch.randn(TOKENS, IDS, generator=torch.Generator().manual_seed(seed)).double()


def logps(*parts: Tensor, temperature: float = 1.0) -> Tensor:
    """[N] of the same tokens, the logits being the sum of what the policy has learned and sees."""
    logits: Tensor = sum(parts) / temperature  # type: ignore[assignment]
    chosen = torch.arange(TOKENS) * 5 % IDS
    return logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]


BASE, PROMPT, OTHER_PROMPT, PIXELS, ADAPTER = (part(seed) for seed in range(5))
HAVING = torch.arange(TOKENS) % 2 == 0
SIGHT = PIXELS * HAVING[:, None]
NOISE = 1e-4 * torch.randn(TOKENS, generator=torch.Generator().manual_seed(9)).double()


def policy(temperature: float = 1.0) -> Tensor:
    return logps(BASE, 0.2 * ADAPTER, PROMPT, SIGHT, temperature=temperature)


SAMPLERS: dict[str, Tensor] = {
    "adapter": logps(BASE, PROMPT, SIGHT),
    "images": logps(BASE, 0.2 * ADAPTER, PROMPT),
    "step 0": logps(BASE, 0.1 * part(7), PROMPT, SIGHT),
    "template": logps(BASE, 0.2 * ADAPTER, OTHER_PROMPT, SIGHT),
    "temperature": policy(0.7),
}
PLAYS: dict[str, Callable[[], Tensor]] = {
    name: lambda name=name: SAMPLERS[name]  # type: ignore[misc]
    for name in LINES
}
RUN = Run(LIMIT, images=HAVING, temperature=1.0, plays=PLAYS, at_temperature=policy)


def test_each_planted_fault_is_named_and_no_other() -> None:
    for name, sampler in SAMPLERS.items():
        for signed in (NOISE, -NOISE):
            fault = sampler_alarm(policy(), sampler + signed, RUN)
            assert fault is not None and fault.name == name and "\n" not in fault.line, name
    assert sampler_alarm(policy(), policy() + NOISE, RUN) is None
    assert sampler_alarm(policy(), policy(), RUN) is None
    assert (
        sampler_alarm(NOISE, NOISE, Run(0.0)) is sampler_alarm(NOISE, NOISE, Run(math.inf)) is None
    )


def test_what_the_trainer_cannot_play_is_named_by_what_is_left() -> None:
    bare = Run(LIMIT)
    blurred = logps(BASE, 0.2 * ADAPTER, PROMPT, 0.5 * SIGHT)
    names = [
        (SAMPLERS["template"], bare, "template"),
        (SAMPLERS["adapter"], replace(bare, agreed=True), "weights"),
        (blurred, replace(bare, images=HAVING), "image size"),
        (blurred, RUN, "image size"),
        (policy() * math.nan, RUN, "not finite"),
    ]
    for sampler, run, name in names:
        fault = sampler_alarm(policy(), sampler, run)
        assert fault is not None and fault.name == name
    cold = sampler_alarm(policy(), SAMPLERS["temperature"], replace(RUN, option="rl.temperature"))
    assert cold is not None and "in the place of rl.temperature=1 " in cold.line


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("factor", [0.3, 0.5, 0.7, 0.95, 1.05, 1.25, 2.0, 3.5])
def test_a_temperature_is_found_in_few_passes(factor: float, top_p: float) -> None:
    asked = Mock(wraps=policy)
    run = replace(RUN, top_p=top_p, plays={}, at_temperature=asked)
    fault = sampler_alarm(policy(), policy(factor) + NOISE, run)
    assert fault is not None and fault.name == "temperature" and asked.call_count == PASSES
    named = float(fault.line.split(": at ")[1].split()[0])
    assert named == pytest.approx(factor, rel=0.02)
    # tokens that no temperature moves
    still = replace(run, images=None, at_temperature=lambda _: torch.zeros(3))
    certain = sampler_alarm(torch.zeros(3), torch.full((3,), -1.0), still)
    assert certain is not None and certain.name == "template"


def test_nothing_is_played_before_an_alarm() -> None:
    def never() -> Tensor:
        raise AssertionError

    run = replace(RUN, plays={"adapter": never}, at_temperature=lambda _: never())
    assert sampler_alarm(policy(), policy() + NOISE, run) is None
    none = torch.zeros(0)
    assert sampler_alarm(none, none, run) is None and math.isnan(mean_gap(none, none))
    with pytest.raises(ValueError, match=r"shapes \(240,\) and \(1,\); wanted"):
        sampler_alarm(policy(), torch.zeros(1), run)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"plays": {"adaptor": policy}}, "plays has 'adaptor'; wanted some of adapter, images"),
        ({"images": HAVING.float()}, "images is torch.float32; wanted a tensor of bool"),
        ({"limit": "0.2"}, "limit is .*; wanted a number$"),
        ({"top_p": True}, "top_p is .*; wanted a number$"),
        ({"temperature": None}, "temperature is .*; wanted a number$"),
        *(({"limit": value}, "limit is .*; wanted") for value in (math.nan, -1e-9)),
        *(({"top_p": value}, "top_p is .*; wanted") for value in (math.nan, 0.0, 1.1)),
        *(({"temperature": x}, "temperature is .*; wanted") for x in (math.nan, 0.0, math.inf)),
    ],
)
def test_a_run_holds_what_it_says(values: dict[str, Any], line: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{line}"):
        Run(**{"limit": LIMIT, **values})


@pytest.mark.parametrize(
    ("sampler", "line"),
    [
        (None, "sampler is NoneType; wanted a tensor of log-probs"),
        (policy().long(), "sampler is torch.int64; wanted log-probs in floating point"),
        (policy()[:1], r"log-probs of shapes \(240,\) and \(1,\)"),
    ],
    ids=repr,
)
def test_log_probs_that_do_not_fit_are_one_line(sampler: Any, line: str) -> None:
    for call in (gaps, mean_gap, gap_row, lambda t, s: sampler_alarm(t, s, RUN)):
        with pytest.raises((TypeError, ValueError), match=f"^{line}"):
            call(policy(), sampler)


def test_a_play_of_nan_hides_no_fault() -> None:
    plays = {"adapter": lambda: policy() * math.nan, "images": PLAYS["images"]}
    fault = sampler_alarm(policy(), SAMPLERS["images"] + NOISE, replace(RUN, plays=plays))
    assert fault is not None and fault.name == "images"


def test_the_row_by_hand() -> None:
    trainer = torch.tensor([0.5, 0.25, 0.2, 0.1]).log()
    sampler = torch.tensor([0.5, 0.5, 0.1, 0.1]).log()
    row = gap_row(trainer, sampler)
    assert row["sampler/gap_mean"] == pytest.approx(math.log(2) / 2)
    assert row["sampler/gap_p99"] == pytest.approx(math.log(2))
    ratios = [1, 0.5, 2, 1]
    assert row["sampler/ess"] == pytest.approx(sum(ratios) ** 2 / (4 * sum(r * r for r in ratios)))
    near = gaps(trainer, sampler, top_p=1 / 1.5)
    assert near.tolist() == pytest.approx([0, math.log(2 / 1.5), math.log(2), 0], abs=1e-6)
    assert "sampler/ess" not in gap_row(trainer, sampler, 0.9)
    p99 = gap_row(policy(), SAMPLERS["images"])["sampler/gap_p99"]
    apart = (policy() - SAMPLERS["images"]).abs().numpy()
    assert p99 == pytest.approx(np.quantile(apart, 0.99), rel=1e-12)


def test_it_imports_alone() -> None:
    code = (
        "import sys; import rrgpolicy.sampler_alarm; "
        "print([m for m in sys.modules if m.split('.')[0] in ('transformers', 'rrgkern', 'peft')"
        " or m.startswith(('rrgtrain', 'rrgpolicy.'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['rrgpolicy.sampler_alarm']"


PLAIN = {"temperature": 0.9, "top_p": 0.95, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, None),
        ({"top_k": -1, "min_p": 0.0}, None),
        ({"top_k": 20}, "top_k=20"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex='a+'"),
        ({"temperature": 0.5}, "temperature=0.5"),
    ],
)
def test_a_setting_that_the_trainer_does_not_know(settings, line):
    assert reshaped_by(PLAIN | settings, 0.9, 0.95) == line
