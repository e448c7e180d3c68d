"""`paper/NAME` is a file, or by rule NAME laid upon the size of its paper; every name stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.recipe_files import (
    describe_recipe,
    find_recipe,
    paper_of,
    papers,
    read_recipe,
    recipe_folder,
    recipe_names,
)
from rrgtrain.schema import Recipe
from tests.rrgtrain.recipes.loaded import loaded

BY_RULE = {
    "editgrpo_common": [
        "dr_grpo",
        "dr_grpo_resample",
        "editgrpo",
        "editgrpo_norm",
        "editgrpo_para",
        "editgrpo_prior",
        "editgrpo_released",
        "grpo",
        "out_of_domain",
    ],
    "mrg_r1": ["mrg_r1_ce_f1_format", "mrg_r1_format", "mrg_r1_sequence"],
    "deer": ["deer_both", "deer_f1", "deer_mixed", "deer_random", "deer_tfidf"],
    "orapo": ["orapo_400", "orapo_accuracy", "orapo_grpo", "orapo_grpo_accuracy", "orapo_sft"],
}
RULED = [(name, size) for size, names in BY_RULE.items() for name in names]


def test_every_name_is_there() -> None:
    assert {f"paper/{name}" for name, _ in RULED} <= set(recipe_names())
    assert len(recipe_names()) == 102 and "papers" not in recipe_names()


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


def test_the_list_of_papers_is_no_recipe() -> None:
    with pytest.raises(UserError, match="recipe 'papers' is unknown"):
        load_config(Recipe, "papers", [])


def test_papers_list_recipes_that_exist_once() -> None:
    listed = [name for paper in papers() for name in paper.recipes]
    assert len(listed) == len(set(listed))
    own = {name.removeprefix("paper/") for name in recipe_names()}
    assert set(listed) <= own and {paper.size for paper in papers()} <= own
    assert paper_of("paper/deer_tfidf") == paper_of("deer_tfidf") == "DEER"
    none = {"sft", "learning", "demo", "demo_small", "iu_xray", "nih", "table", "combined"}
    none |= {"lora_24gb", "editgrpo_severity", "dr_grpo_severity"}
    unlisted = {n for n in own if paper_of(n) is None}
    assert unlisted == none | {"qwen_3b"}


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
