"""Every recipe of a demonstration trains a step; those of a paper's size ask for what they need."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrgdata.training_subset import training_subset
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import build_algorithm
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.recipe_files import recipe_names
from rrgtrain.rewards import RewardService
from rrgtrain.run import Checked, check_data
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl import train_rl
from rrgtrain.train.sft import train_sft
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import rl_run, sft_run, studies
from tests.rrgtrain.recipes.loaded import PAPER, loaded

MICRO = [
    *("rl.steps=1", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=10", "rl.eval_every=1"),
    *("rl.warmup=0", "sft.steps=1", "sft.batch=2", "sft.eval_every=1"),
    "token_weights.distil_steps=2",
]
DEMO = [name for name in recipe_names() if "/" not in name and name != "out_of_domain"]


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
    chosen = (
        given["train"]
        if sft
        else training_subset(recipe.data, recipe.seed, given["train"], rewards.labeller)
    )
    checked = Checked(recipe, sft=sft, algorithm=algorithm)
    check_data(checked, given, rewards, chosen=chosen)

    def validate() -> dict[str, float]:
        return {recipe.eval.best_by: 0.5}

    with RunDir.create(out) as run, RunLog(run) as log:
        best = run.checkpoints / "best"
        if algorithm is None:
            train_sft(sft_run(policy, prompts, given["train"], recipe, validate, best, log))
        else:
            of_run = (policy, prompts, chosen, recipe, algorithm, rewards, validate, best, log)
            train_rl(rl_run(*of_run))
        return read_metrics(run.metrics)


def is_sft(name: str) -> bool:
    return name == "sft" or (name.endswith("_sft") and name != "orapo_sft")


def choices(value: object, key: str) -> Iterator[tuple[str, object]]:
    """What a setting chooses: a name, a term, on or off; of a number its sign alone."""
    if isinstance(value, dict):
        yield key, bool(value)
        for name, inner in value.items():
            yield from choices(inner, f"{key}.{name}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, (value > 0) - (value < 0)
    else:
        yield key, str(value)


def unlike_recipes() -> list[str]:
    """Cover every choice that a demonstration makes, with each algorithm, by few recipes.

    Data and evaluation are no part of it: the studies are planted here.
    """
    left: dict[str, set] = {}
    for name in DEMO:
        recipe = micro(name)
        kind = "sft" if is_sft(name) else recipe.rl.algorithm
        read = dataclasses.asdict(recipe)
        read["data"] = {key: read["data"][key] for key in ("agreeing", "balanced")}
        del read["eval"]
        left[name] = {(kind, *choice) for choice in choices(read, "")}
    chosen = []
    while any(left.values()):
        name = max(left, key=lambda name: len(left[name]))
        chosen.append(name)
        covered = left.pop(name)
        left = {other: choices - covered for other, choices in left.items()}
    return chosen


def test_recipes_train(tmp_path: Path) -> None:
    chosen = unlike_recipes()
    assert {"mrg_r1_sequence", "deer_tfidf", "orapo_sft", "editgrpo_exact"} <= set(chosen)
    for name in chosen:
        trains(name, tmp_path / name)


def trains(name: str, out: Path) -> None:
    recipe, sft = micro(name), is_sft(name)
    rows = trained(recipe, out, sft=sft)
    row = next(row for row in rows if row["step"] >= 0)
    assert row["phase"] == ("sft" if sft else recipe.rl.algorithm), name
    assert all(math.isfinite(value) for key, value in row.items() if key != "phase"), name
    if sft:
        return
    assert {f"reward/{term}" for term in recipe.reward.terms} <= set(row), name
    assert ("token_weight/mean" in row) == ("ditpo" in recipe.rl.algorithm), name
    assert ("oracle/weight" in row) == ("orapo" in recipe.rl.algorithm), name
    assert ("preference/loss" in row) == ("orapo" in recipe.rl.algorithm and name != "orapo_sft")
    assert any(key.startswith("edits/") for key in row) == ("editgrpo" in recipe.rl.algorithm)


def test_a_recipe_for_evaluation_loads() -> None:
    recipe = load_config(Recipe, "out_of_domain", [])
    assert recipe.data.phantom.test and not recipe.data.phantom.train


def test_a_papers_size_is_asked_for_what_it_needs_in_one_line() -> None:
    """The official models lie on nobody's machine unasked; what is missing is named."""
    for name in PAPER:
        recipe = loaded(name)
        assert recipe.data.source != "phantom" and recipe.data.root is None, name
        with pytest.raises(UserError, match=r"weights|options|tokenizer|download|hub") as caught:
            RewardService(recipe.reward)
        assert "\n" not in str(caught.value), name
