"""`rrgtrain demo --small`: what a newcomer types first."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgtrain import cli
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.recipe_files import recipe_names
from rrgtrain.schema import Recipe


def test_a_small_demo_is_a_smaller_one_in_a_directory_of_its_own() -> None:
    options = cli.understood(["demo", "--small", "rl.steps=3"])
    assert (options.recipe, str(options.out)) == ("demo_small", "runs/demo-small")
    assert cli.understood(["demo", "--small", "--out", "x"]).out == Path("x")
    assert cli.understood(["demo"]).recipe == "demo"
    small, whole = (load_config(Recipe, name, []) for name in ("demo_small", "demo"))
    sizes = [
        (r.data.phantom.train, r.data.phantom.test, r.policy.warmup_steps, r.sft.steps, r.rl.steps)
        for r in (small, whole)
    ]
    assert all(3 * a <= b for a, b in zip(*sizes, strict=True)), sizes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demo", "dr_grpo", "--small"], "--small is the recipe demo_small: leave out dr_grpo"),
        (["demo", "--resume", "runs/demo", "--small"], "has its own: leave out --small"),
        (["rl", "--small"], "unrecognized arguments: --small"),
    ],
)
def test_words_that_do_not_go_together(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2 and told in capsys.readouterr().err


def test_a_newcomers_recipes_are_listed_first() -> None:
    names = recipe_names()
    assert names[:5] == ["demo", "demo_small", "sft", "editgrpo", "table"]
    assert names[5:] == sorted(set(names) - set(names[:5]))
