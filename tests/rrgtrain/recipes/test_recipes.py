"""Every recipe of a demonstration trains a step; those of a paper's size ask for what they need."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rrgtrain.algorithms import build_algorithm
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog, read_metrics
from rrgtrain.recipe_files import recipe_names
from rrgtrain.rewards import RewardService
from rrgtrain.run import check_data
from rrgtrain.schema import Recipe
from rrgtrain.select import training_subset
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl import train_rl
from rrgtrain.train.rl_run import RlRun
from rrgtrain.train.sft import SftRun, train_sft
from tests.rrgtrain.common import studies
from tests.rrgtrain.policy.common import tiny_policy

MICRO = [
    *("rl.steps=1", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=10", "rl.eval_every=1"),
    *("rl.warmup=0", "sft.steps=1", "sft.batch=2", "sft.eval_every=1"),
    "token_weights.distil_steps=2",
]
DEMO = [name for name in recipe_names() if "/" not in name and name != "out_of_domain"]
PAPER = [name for name in recipe_names() if name.startswith("paper/")]


def micro(name: str, *overrides: str) -> Recipe:
    recipe = load_config(Recipe, name, [*MICRO, *overrides])
    if recipe.data.balanced is not None:
        recipe.data.balanced = 4
    return recipe


def trained(recipe: Recipe, out: Path, *, sft: bool) -> list[dict]:
    """The log of one step on studies of text alone, all that is looked at before it included."""
    given = {split: studies(6, split) for split in ("train", "val", "test")}
    policy = tiny_policy()
    prompts = PromptLoader(policy, recipe.policy.prompt)
    rewards = RewardService(recipe.reward)
    rewards.fit(given["train"])
    algorithm = None if sft else build_algorithm(recipe)
    chosen = given["train"] if sft else training_subset(recipe, given["train"], rewards.labeller)
    check_data(recipe, given, rewards, sft=sft, algorithm=algorithm, chosen=chosen)

    def validate() -> dict[str, float]:
        return {recipe.eval.best_by: 0.5}

    with RunDir.create(out) as run, RunLog(run) as log:
        best = run.checkpoints / "best"
        if algorithm is None:
            train_sft(SftRun(policy, prompts, given["train"], recipe, validate, best, log))
        else:
            of_run = (policy, prompts, chosen, recipe, algorithm, rewards, validate, best, log)
            train_rl(RlRun(*of_run))
        return read_metrics(run.metrics)


@pytest.mark.parametrize("name", DEMO)
def test_a_recipe_trains(name: str, tmp_path: Path) -> None:
    recipe, sft = micro(name), (name.endswith("_sft") and name != "orapo_sft") or name == "sft"
    row = trained(recipe, tmp_path / "run", sft=sft)[0]
    assert row["phase"] == ("sft" if sft else recipe.rl.algorithm)
    assert all(math.isfinite(value) for key, value in row.items() if key != "phase")
    if sft:
        return
    assert {f"reward/{term}" for term in recipe.reward.terms} <= set(row)
    assert ("token_weight/mean" in row) == ("ditpo" in recipe.rl.algorithm)
    assert ("oracle/weight" in row) == ("orapo" in recipe.rl.algorithm)
    assert ("preference/loss" in row) == ("orapo" in recipe.rl.algorithm and name != "orapo_sft")
    assert any(key.startswith("edits/") for key in row) == ("editgrpo" in recipe.rl.algorithm)


def test_a_recipe_for_evaluation_loads() -> None:
    recipe = load_config(Recipe, "out_of_domain", [])
    assert recipe.data.phantom.test and not recipe.data.phantom.train


@pytest.mark.parametrize("name", PAPER)
def test_a_papers_size_is_asked_for_what_it_needs_in_one_line(name: str) -> None:
    """The official models lie on nobody's machine unasked; what is missing is named."""
    recipe = load_config(Recipe, name, [])
    assert recipe.data.source != "phantom" and recipe.data.root is None
    with pytest.raises(UserError, match=r"weights|options|tokenizer|download|hub") as caught:
        RewardService(recipe.reward)
    assert "\n" not in str(caught.value)
