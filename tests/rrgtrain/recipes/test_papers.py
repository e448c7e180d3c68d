"""PAPERS.md names every recipe that exists, and each row of a table has its command."""

from __future__ import annotations

import re

import pytest

from rrgtrain.config import load_config
from rrgtrain.recipe_files import recipe_folder, recipe_names
from rrgtrain.schema import Recipe

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


def test_every_demonstration_has_its_papers_size() -> None:
    of_this_project = {"sft", "learning", "demo", "demo_small", "iu_xray", "nih", "table"}
    of_this_project |= {"editgrpo_severity", "dr_grpo_severity"}
    small = {n for n in NAMES if "/" not in n} - of_this_project
    assert {n for n in small if f"paper/{n}" not in NAMES} == set()


def test_its_settings_can_be_given() -> None:
    settings = set(re.findall(r"\b((?:sft|select)\.\w+=[\w.]+)", TEXT))
    assert len(settings) >= 3
    for setting in settings:
        load_config(Recipe, None, [setting])


@pytest.mark.parametrize("paper", ["EditGRPO", "MRG-R1", "DEER", "OraPO"])
def test_every_table_with_trainings_is_there(paper: str) -> None:
    section = TEXT.split(f"## {paper}\n", 1)[1].split("\n## ", 1)[0]
    places = {
        "EditGRPO": ["table 1", "table 4", "table 5", "tables 2 and 6", "figure 3", "figure 4"],
        "MRG-R1": ["table II", "tables I and II", "eq. 1"],
        "DEER": [
            "table 1",
            "tables 1, 2 and 4",
            "table 2",
            "table 3",
            "table 5",
            "table 6",
            "table 7",
        ],
        "OraPO": [f"table 4, row {row}" for row in range(1, 6)] + ["| table 5", "tables 3 and 7"],
    }
    for place in places[paper]:
        assert place in section, place
