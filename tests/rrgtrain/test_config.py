"""Recipes: what is read, and that every mistake is told in one line with its place."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgtrain import recipe_files
from rrgtrain.config import dump_config, load_config, undone_keys
from rrgtrain.errors import UserError
from rrgtrain.recipe_files import find_recipe, read_recipe, recipe_folder, recipe_names
from rrgtrain.schema import Recipe


@dataclass
class Optimiser:
    lr: float = Field(default=1e-3, ge=0.0)
    steps: int = Field(default=10, ge=1, le=1000)
    schedule: Literal["constant", "cosine"] = "constant"
    nesterov: bool = False
    clip: float | None = None
    betas: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...] = (0.9, 0.99)


@dataclass
class Edit:
    tau: float = 0.6


@dataclass
class Tiny:
    seed: int = 0
    name: str = "run"
    optimiser: Optimiser = Field(default_factory=Optimiser)
    edit: Edit = Field(default_factory=Edit)
    terms: dict[str, float] = Field(default_factory=lambda: {"match": 1.0, "label": 1.0})


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(recipe: str | Path | None, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(Tiny, recipe, list(overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_one_recipe_sets_is_not_a_default_of_the_next() -> None:
    first = load_config(Tiny, None, ["seed=3", "optimiser.lr=1", "terms.match=7"])
    assert (first.seed, first.optimiser.lr, first.terms["match"]) == (3, 1.0, 7.0)
    first.terms["label"] = 9.0
    assert load_config(Tiny, None, []) == Tiny()


def test_precedence_is_defaults_base_recipe_overrides(tmp_path: Path) -> None:
    write(tmp_path, "root", "seed: 1\noptimiser: {lr: 1e-4, steps: 20, nesterov: true}\n")
    write(tmp_path, "middle", "base: root\noptimiser:\n  steps: 30\n")
    leaf = write(tmp_path, "leaf", "base: middle\noptimiser:\n  schedule: cosine\n")
    cfg = load_config(Tiny, leaf, ["optimiser.steps=40", "optimiser.clip=0.1"])
    assert cfg.seed == 1 and cfg.name == "run"
    assert cfg.optimiser == Optimiser(lr=1e-4, steps=40, schedule="cosine", nesterov=True, clip=0.1)


def test_free_mapping_of_a_recipe_replaces_and_an_override_sets_one_entry(tmp_path: Path) -> None:
    path = write(tmp_path, "r", "terms: {format: 0.25}\n")
    assert load_config(Tiny, path, []).terms == {"format": 0.25}
    assert load_config(Tiny, path, ["terms.match=2"]).terms == {"format": 0.25, "match": 2.0}
    assert load_config(Tiny, path, ["terms={a: 1}"]).terms == {"a": 1.0}


def test_interpolation_follows_a_later_override(tmp_path: Path) -> None:
    path = write(tmp_path, "r", "optimiser:\n  steps: ${seed}\n")
    assert load_config(Tiny, path, ["seed=7"]).optimiser.steps == 7
    assert "'nope' not found" in refused(None, "seed=${nope}")
    deep = write(tmp_path, "deep", f"seed: '{'${a:' * 200}1{'}' * 200}'\n")
    assert refused(deep) == (
        f"{deep}:1: seed: nested too deep; give it a value, or point ${{...}} at a key that exists"
    )


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("optimizer.steps=3", "did you mean optimiser.steps?"),
        ("optimiser.tau=0.5", "did you mean edit.tau?"),
        ("optimiser={stepz: 3}", "did you mean optimiser.steps?"),
        ("edit.csv=1", "unknown key 'edit.csv'; edit has tau"),
        ("qqqq.zzzz=1", "the top level has seed, name, optimiser, edit, terms"),
        ("seed.x=1", "write seed=value"),
        ("optimiser=3", "set one of its keys: optimiser.lr, optimiser.steps"),
        ("seed", "write it as section.key=value"),
        ("seed=[1", "not YAML (expected ',' or ']'"),
        ("terms={bleu4: 1, bleu4: 2}", "not YAML (found duplicate key bleu4)"),
        ("terms={[a]: 1}", "not YAML (found unhashable key)"),
    ],
)
def test_bad_override_says_what_would_be_right(override: str, wanted: str) -> None:
    message = refused(None, override)
    assert wanted in message
    assert f"override {override!r}" in message


@pytest.mark.parametrize(
    ("override", "seen", "wanted"),
    [
        ("optimiser.steps=many", "'many' (str)", "a whole number"),
        ("optimiser.steps=1.5", "1.5 (float)", "a whole number"),
        ("optimiser.lr=true", "True (bool)", "a number"),
        ("optimiser.nesterov=maybe", "'maybe' (str)", "true or false"),
        ("optimiser.clip=hard", "'hard' (str)", "a number or null"),
        ("optimiser.steps=null", "null", "a whole number"),
        ("optimiser.betas=[0.9, x]", "[0.9, 'x'] (list)", "a list with each item a number"),
        ("terms=3", "3 (int)", "a mapping with each value a number"),
    ],
)
def test_wrong_type_names_value_and_type(override: str, seen: str, wanted: str) -> None:
    message = refused(None, override)
    assert message.endswith(f"is {seen}; wanted {wanted}")


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("optimiser.schedule=cosin", "one of constant, cosine; did you mean cosine?"),
        ("optimiser.lr=-1", "wanted a value >= 0.0"),
        ("optimiser.lr=.nan", "optimiser.lr is nan; wanted a finite number"),
        ("optimiser.betas=[0.9, .nan]", "optimiser.betas is nan; wanted a finite number"),
        ("terms={a: 1.0, b: .nan}", "terms.b is nan; wanted a finite number"),
        ("optimiser.steps=1001", "wanted a value >= 1 and <= 1000"),
        ("optimiser.betas=[0.9, 1.5]", "optimiser.betas is 1.5"),
    ],
)
def test_choices_and_bounds(override: str, wanted: str) -> None:
    assert wanted in refused(None, override)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("optimiser: [1\nedit: 2\n", ":2: broken YAML"),
        ("optimiser:\n\tlr: 1\n", ":2: broken YAML"),
        ("- x\n" * 2**18 + "x", ": broken YAML: 1,048,577 characters; wanted at most 1,048,576"),
        ("seed: 1\nseed: 2\n", ":2: broken YAML: found duplicate key seed"),
        ("rl: &a\n  x: *a\n", ":1: broken YAML: found unconstructable recursive node"),
        ("rl: {}\nseed: !!binary aGk=\n", ":2: broken YAML: !!binary is not read here"),
        ("seed: !!int x\n", ":1: broken YAML: !!int is not read here; write a plain value"),
        ("rl: &a {x: 1}\nsft: {!!merge y: *a}\n", ":2: broken YAML: found merging key y"),
        ("rl: &a {x: 1}\nsft: {<<: *a}\n", ":2: broken YAML: found merging key <<"),
        ("- 1\n- 2\n", "holds a sequence"),
    ],
)
def test_broken_yaml_names_file_and_line(tmp_path: Path, text: str, line: str) -> None:
    path = write(tmp_path, "r", text)
    message = refused(path)
    assert str(path) in message and line in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed: [[[[]]]]\n", ": nested too deeply"),
        ("seed: {a: {a: {a: {a: 1}}}}\n", ": nested too deeply"),
    ],
)
def test_a_recipe_has_bounds(tmp_path, monkeypatch, text, line):
    monkeypatch.setattr(recipe_files, "_DEEPEST", 3)
    assert line in refused(write(tmp_path, "r", text))


def test_unknown_recipe_and_base(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.yaml")
    assert "recipes are: demo, demo_small" in refused("no-such-recipe")
    assert "did you mean editgrpo_severity?" in refused("editgrpo_severe")
    assert len(refused("no-such-recipe")) < 200
    (tmp_path / "folder.yaml").mkdir()
    for directory in (tmp_path, tmp_path / "folder.yaml", "paper"):
        assert "is a directory; name a YAML file in it" in refused(directory)
    path = write(tmp_path, "r", "base: no-such-recipe\n")
    assert f"{path}: base 'no-such-recipe' is unknown" in refused(path)
    assert "name a recipe" in refused(write(tmp_path, "list", "base: [a, 3]\n"))
    assert "name a recipe" in refused(write(tmp_path, "map", "base: {a: b}\n"))


def test_several_bases_in_order_each_once(tmp_path: Path) -> None:
    write(tmp_path, "root", "rl: {lr: 1e-3, steps: 1, prompts: 1}\n")
    write(tmp_path, "left", "base: root\nrl: {steps: 2, prompts: 2}\n")
    write(tmp_path, "right", "base: root\nrl: {prompts: 3}\n")
    both = write(tmp_path, "both", "base: [left, right]\nrl: {group: 4}\n")
    rl = load_config(Recipe, both, []).rl
    assert (rl.lr, rl.steps, rl.prompts, rl.group) == (1e-3, 2, 3, 4), "root is not applied again"


def test_one_recipe_upon_another(tmp_path: Path) -> None:
    one, two = (write(tmp_path, n, f"rl: {{steps: {i}}}\n") for i, n in ((3, "a"), (4, "b")))
    assert load_config(Recipe, f"{one}+{two}", []).rl.steps == 4
    assert load_config(Recipe, f"{two}+{one}", []).rl.steps == 3
    assert load_config(Recipe, "learning+grpo", []).data.phantom.findings == 8
    assert "'nothing' is unknown" in refused("learning+nothing")


def test_what_a_later_recipe_takes_back_is_said() -> None:
    """One line for a key that comes along by a base, and for the algorithm in any way."""
    undone = undone_keys(Recipe, "paper/dr_grpo_rate+paper/editgrpo_exact")
    algorithm = (
        "rl.algorithm is editgrpo by paper/editgrpo_exact, no longer dr_grpo as "
        "paper/dr_grpo_rate sets it"
    )
    assert undone == [algorithm]
    (own, *_) = undone_keys(Recipe, "grpo+orapo")
    assert own == "rl.algorithm is orapo by orapo, no longer grpo as grpo sets it", "not by a base"
    silent = ("paper/editgrpo", "paper/deer+paper/deer_fifth", "paper/orapo+paper/lora_24gb")
    for recipe in (None, *silent):
        assert undone_keys(Recipe, recipe) == []


def test_circle_of_bases(tmp_path: Path) -> None:
    write(tmp_path, "one", "base: two\n")
    path = write(tmp_path, "two", "base: one\n")
    assert "closes a loop (two -> one -> two)" in refused(path)


@settings(deadline=None, max_examples=20)
@given(
    lr=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    clip=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_dumped_config_loads_equal(tmp_path_factory, lr, name, clip):
    path = tmp_path_factory.mktemp("dump") / "config.yaml"
    cfg = Tiny(name=name, optimiser=Optimiser(lr=lr, clip=clip), terms={"é": 0.5})
    dump_config(cfg, path)
    assert load_config(Tiny, path, []) == cfg


def test_a_dumped_config_keeps_what_an_interpolation_stands_for_to_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "sk-secret")
    text = """
        data: {root: here}
        reward:
          cache: "${data.root}/cache"
          options: {facts: {endpoint: "http://me:${oc.env:MY_SECRET}@h/v1", model: m}}
    """
    path, dumped = write(tmp_path, "mine", textwrap.dedent(text)), tmp_path / "config.yaml"
    recipe = load_config(Recipe, path, ["reward.options.green.key=${oc.env:MY_SECRET}"])
    assert recipe.reward.options["facts"]["endpoint"] == "http://me:sk-secret@h/v1"
    recipe.policy.path = "elsewhere"
    dump_config(recipe, dumped)
    assert "sk-secret" not in dumped.read_text()
    assert load_config(Recipe, dumped, []) == recipe
    assert load_config(Recipe, dumped, ["data.root=there"]).reward.cache == "there/cache"
    # what was set since goes before what was written
    recipe.reward.cache = "mine"
    dump_config(recipe, dumped)
    assert load_config(Recipe, dumped, []) == recipe
    monkeypatch.delenv("MY_SECRET")
    with pytest.raises(UserError, match="Environment variable 'MY_SECRET' not found"):
        load_config(Recipe, dumped, [])


def bases_of(name: str) -> list[str]:
    base = read_recipe(find_recipe(name))[0].get("base", [])
    return [base] if isinstance(base, str) else base


def test_readme_lists_every_recipe_and_its_base() -> None:
    readme = (recipe_folder() / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)` \|.*\| (?:`(\w+)`|defaults) \|$", readme, re.MULTILINE)
    top = [name for name in recipe_names() if "/" not in name]
    assert dict(rows) == {name: next(iter(bases_of(name)), "") for name in top}


def test_readme_names_every_recipe_of_a_papers_size() -> None:
    readme = (recipe_folder() / "README.md").read_text(encoding="utf-8")
    for name in recipe_names():
        folder, _, own = name.rpartition("/")
        if folder and f"`{name}`" not in readme:
            assert f"../{own}" in bases_of(name), f"{name} is no recipe above at another size"
    systems = {"editgrpo", "grpo", "mrg_r1", "deer", "orapo", "combined"}
    sized = {n.removeprefix("paper/") for n in recipe_names() if n.startswith("paper/")}
    of_systems = {n for n in recipe_names() if n.split("_")[0] in systems}
    own = {n for n in of_systems if not n.endswith(("_severity", "_by_finding"))}
    assert own <= sized, "a system or variant without its paper's size"


def test_readme_example_loads(tmp_path: Path) -> None:
    readme = (recipe_folder() / "README.md").read_text(encoding="utf-8")
    example = readme.partition("# mine.yaml\n")[2]
    recipe = load_config(Recipe, write(tmp_path, "mine", textwrap.dedent(example)), [])
    assert recipe.rl.algorithm == "editgrpo" and recipe.rl.lr == 1e-6 and recipe.rl.prompts == 32


def test_a_number_that_no_run_could_count_to_is_refused_in_a_line() -> None:
    """Each would sit in silence; beyond 64 bits none is taken anywhere."""
    counts = {
        "rl.steps": 10**9 + 1,
        "sft.steps": 10**12,
        "rl.prompts": 10**7,
        "rl.group": 10**7,
        "sft.batch": 10**8,
        **dict.fromkeys(("rl.eval_every", "eval.limit", "checkpoint.keep"), 10**20),
    }
    for key, number in counts.items():
        with pytest.raises(UserError, match=f"{key} is {number}; wanted a ") as told:
            load_config(Recipe, None, [f"{key}={number}"])
        assert "\n" not in str(told.value)
