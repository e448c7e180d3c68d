"""Losses, metrics and gradients of two ranks are those of one process.

The processes are started once; `rank_suite` is what they compute.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from tests.rrgpolicy.ranks.rank_suite import CASES, FAMILIES, Found
from tests.rrgtrain.runs import on_ranks

Suites = dict[str, tuple[dict[str, Found], dict[str, Found]]]

VARIANTS = (
    *("bf16", "bf16, frozen tower", "LoRA in bf16"),
    *("checkpointing", "LoRA", "LoRA, head and loss in one", "frozen tower"),
)
TUNING = ("sft, whole", "sft, micro-batches", "sft, one study")
HUNG = 300.0
"""Seconds of the clock after which ranks that wait for each other are killed."""


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Suites:
    home = tmp_path_factory.mktemp("fsdp2")
    return computed_in(home, "families", "updates", "variants", "tuning")


def computed_in(home: Path, *names: str, patience: float = 600.0) -> Suites:
    out, main = home / "found", "tests.rrgpolicy.ranks.rank_suite"
    done = on_ranks("fsdp2", str(out), *names, cwd=home, main=main, patience=patience)
    assert [d.status for d in done] == [0, 0], done[0].err + done[1].err
    return pickle.loads(out.read_bytes())


def compared(alone: Found, both: Found, tolerance: float) -> None:
    assert both.loss == pytest.approx(alone.loss, rel=tolerance, abs=tolerance)
    assert both.metrics.keys() == alone.metrics.keys()
    for name, value in alone.metrics.items():
        assert both.metrics[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name
    assert both.gradients.keys() == alone.gradients.keys()
    assert any(bool(value.any()) for value in alone.gradients.values())
    # the largest entry is the scale: what is near 0 is a difference of large numbers
    largest = max(float(value.abs().max()) for value in alone.gradients.values())
    for name, value in alone.gradients.items():
        assert float((both.gradients[name] - value).abs().max()) <= tolerance * largest, name


@pytest.mark.parametrize("case", CASES)
def test_an_update_on_two_ranks_is_that_of_one_process(suites: Suites, case: str) -> None:
    alone, both = suites["updates"]
    compared(alone[case], both[case], 1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_other_forms_of_training_too(suites: Suites, variant: str) -> None:
    alone, both = suites["variants"]
    # 2^-8 is half a unit in the last place of bf16, and gradients are rounded on every rank
    compared(alone[variant], both[variant], 2**-6 if "bf16" in variant else 1e-9)


def test_head_and_loss_in_one_are_both_one_after_the_other(suites: Suites) -> None:
    for found in suites["variants"]:
        compared(found["LoRA"], found["LoRA, head and loss in one"], 1e-9)


@pytest.mark.parametrize("tuned", TUNING)
def test_fine_tuning_ends_a_step_at_the_same_weights(suites: Suites, tuned: str) -> None:
    alone, both = suites["tuning"]
    compared(alone[tuned], both[tuned], 1e-9)


def test_the_suite_tells_its_cases_apart(suites: Suites) -> None:
    """Results that are equal would mean that an option never arrived. Those of bnpo, dapo and bnpo
    in micro-batches are, those of dr_grpo with and without old log-probabilities, and those of bnpo
    and dapo with cut reports."""
    alone, _ = suites["updates"]
    sums = {
        name: float(sum(g.abs().sum() for g in f.gradients.values())) for name, f in alone.items()
    }
    assert len({round(total, 9) for total in sums.values()}) == len(sums) - 4
    assert all(torch.isfinite(torch.tensor(total)) for total in sums.values())


@pytest.mark.parametrize("way", FAMILIES)
@pytest.mark.parametrize("loop", ["rl", "sft"])
def test_other_families_share_prompts_on_two_ranks_as_in_one_process(
    suites: Suites, way: str, loop: str
) -> None:
    alone, both = suites["families"]
    # linear attention computes in fp32 within
    compared(alone[f"{way}, {loop}"], both[f"{way}, {loop}"], 1e-4 if way == "a cache" else 1e-9)


def test_a_tower_that_trains_alone_keeps_ranks_without_images_in_step(tmp_path: Path) -> None:
    """In every way; the suite is alone, so that ranks that wait for ever are this test's."""
    alone, both = computed_in(tmp_path, "towers", patience=HUNG)["towers"]
    assert alone.keys() == both.keys()
    for name, computed in alone.items():
        # linear attention computes in fp32 within
        compared(computed, both[name], 1e-4 if "states" in name else 1e-9)
