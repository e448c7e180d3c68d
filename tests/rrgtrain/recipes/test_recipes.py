"""Recipes: a demonstration trains a step, each name is a file or a rule and stands in PAPERS.md."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrgdata.training_subset import training_subset
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import build_algorithm
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.recipe_files import (
    describe_recipe,
    find_recipe,
    paper_of,
    papers,
    read_recipe,
    recipe_folder,
    recipe_names,
)
from rrgtrain.rewards import RewardService
from rrgtrain.run.checked import Checked
from rrgtrain.run.data import check_data
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


def few(left: dict[str, set]) -> list[str]:
    """Names that together make every choice, the one with the most new choices first."""
    chosen = []
    while any(left.values()):
        name = max(left, key=lambda name: len(left[name]))
        chosen.append(name)
        covered = left.pop(name)
        left = {other: choices - covered for other, choices in left.items()}
    return chosen


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
    return few(left)


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


def test_a_papers_size_is_asked_for_what_it_needs_in_one_line() -> None:
    """The official models lie on nobody's machine unasked; what is missing is named."""
    for name in PAPER:
        recipe = loaded(name)
        assert recipe.data.source != "phantom" and recipe.data.root is None, name
        with pytest.raises(UserError, match=r"weights|options|tokenizer|download|hub") as caught:
            RewardService(recipe.reward)
        assert "\n" not in str(caught.value), name


TEXT = (recipe_folder() / "PAPERS.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| where", "| what"))
]
NAMES = recipe_names()
# What others build on, and what belongs to no paper.
BASES = {
    "paper/qwen_3b",
    "paper/huatuo_7b",
    "paper/editgrpo_common",
    "paper/lora_24gb",
    "sft",
    "learning",
    "demo",
    "demo_small",
    "grounded",
}


# Rows of the papers have their command last, the others their recipe.
RECIPES = [row[2] if len(row) == 4 else row[-1] for row in ROWS]
COMMANDS = [command for row in ROWS if len(row) == 4 for command in re.findall("`(.+)`", row[3])]


def named(cell: str) -> list[str]:
    """The recipes of a cell: quoted alone, or after the verb of a quoted command."""
    quoted = re.findall(r"`([^`]+)`", cell)
    words = [q.split()[2] if q.startswith("rrgtrain ") and " " in q[9:] else q for q in quoted]
    return [w for w in words if "=" not in w and "." not in w and not w.startswith("rrgtrain")]


def test_every_recipe_that_is_named_exists() -> None:
    found = {name for cell in RECIPES for name in named(cell)}
    assert len(found) > 35
    assert found <= set(NAMES), found - set(NAMES)


def test_every_recipe_is_named() -> None:
    shown = {name.removeprefix("paper/") for cell in RECIPES for name in named(cell)}
    left = [n for n in NAMES if n.removeprefix("paper/") not in shown and n not in BASES]
    assert left == []


BY_RULE = {
    "editgrpo_common": [
        *("dr_grpo", "dr_grpo_resample", "editgrpo", "editgrpo_norm", "editgrpo_para"),
        *("editgrpo_prior", "editgrpo_released", "grpo", "out_of_domain"),
    ],
    "mrg_r1": ["mrg_r1_ce_f1_format", "mrg_r1_format", "mrg_r1_sequence"],
    "deer": ["deer_both", "deer_f1", "deer_mixed", "deer_random", "deer_tfidf"],
    "orapo": ["orapo_400", "orapo_accuracy", "orapo_grpo", "orapo_grpo_accuracy", "orapo_sft"],
}
RULED = [(name, size) for size, names in BY_RULE.items() for name in names]


def test_the_rule_is_what_a_file_of_two_bases_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for name, size in RULED:
        path = find_recipe(f"paper/{name}")
        assert not path.exists() and path == recipe_folder() / "paper" / f"{name}.yaml"
        assert read_recipe(path)[0] == {"base": [size, f"../{name}"]}
        file.write_text(f"base: [paper/{size}, {name}]\n")
        wanted = load_config(Recipe, file, [])
        assert loaded(f"paper/{name}") == wanted != loaded(name), name
    assert load_config(Recipe, path, []) == wanted, "the path that a file would have"


def test_a_file_goes_before_the_rule() -> None:
    assert loaded("paper/editgrpo_exact").edit.extractor == "radgraph"
    assert loaded("paper/editgrpo_rexgradient").rl.prompts == 32, "its base too"


def test_the_rule_is_one_of_the_shipped_recipes_alone(tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "editgrpo.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match="no such file"):
        load_config(Recipe, tmp_path / "paper" / "editgrpo.yaml", [])
    (tmp_path / "paper" / "editgrpo.yaml").write_text("seed: 2\n")
    (tmp_path / "mine.yaml").write_text("base: paper/editgrpo\n")
    assert load_config(Recipe, tmp_path / "mine.yaml", []) == Recipe(seed=2)


@pytest.mark.parametrize("typo", ["paper/deer_tfid", "paper/deer_tfidff"])
def test_a_misspelt_name_is_told_the_nearest(typo: str) -> None:
    with pytest.raises(UserError, match=f"'{typo}' is unknown; did you mean paper/deer_tfidf"):
        load_config(Recipe, typo, [])


def test_papers_list_recipes_that_exist_once() -> None:
    listed = [name for paper in papers() for name in paper.recipes]
    assert len(listed) == len(set(listed))
    own = {name.removeprefix("paper/") for name in recipe_names()}
    assert set(listed) <= own and {paper.size for paper in papers()} <= own
    assert paper_of("paper/deer_tfidf") == paper_of("deer_tfidf") == "DEER"
    none = {"sft", "learning", "demo", "demo_small", "iu_xray", "nih", "table", "combined"}
    none |= {"lora_24gb", "editgrpo_severity", "dr_grpo_severity", "editgrpo_by_finding"}
    unlisted = {n for n in own if paper_of(n) is None}
    assert unlisted == none | {"qwen_3b", "grounded"}


def test_the_first_line_of_a_recipe_says_what_it_is() -> None:
    for name in recipe_names():
        first = describe_recipe(name)
        assert first[0] not in "#{" and first.endswith(".") and len(first) <= 90, name


def test_an_arm_is_a_recipe_of_its_own_name_whose_places_are_in_its_file() -> None:
    """A bad value is told with the file that one can open, and its line."""
    path = find_recipe("deer_tfidf")
    tree, places = read_recipe(path)
    assert not path.exists() and tree["token_weights"]["kind"] == "tfidf"
    file, _, line = places["token_weights.kind"].rpartition(":")
    assert Path(file) == recipe_folder() / "deer.yaml"
    assert Path(file).read_text().splitlines()[int(line) - 1].strip() == "kind: tfidf"
    assert "arms" not in read_recipe(find_recipe("deer"))[0]


def test_arms_are_of_shipped_files(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("seed: 1\narms:\n  other:\n    seed: 2\n")
    with pytest.raises(UserError, match=r"mine.yaml:2: .*arms"):
        load_config(Recipe, mine, [])
