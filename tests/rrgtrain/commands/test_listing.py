"""`rrgtrain recipes`, `keys` and `demo --small`: all there is, and the nearest to a wrong key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from rrgtrain import cli
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.recipe_files import recipe_names
from rrgtrain.schema import Recipe
from rrgtrain.schema.keys import key_names


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_every_recipe_is_listed_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(maxsplit=2) for line in shown(capsys, "recipes").splitlines()]
    assert [name for name, *_ in lines] == recipe_names()
    assert all(len(line) == 3 and line[2].endswith(".") for line in lines)
    rows = {name: (paper, text) for name, paper, text in lines}
    assert rows["deer_f1"] == ("DEER", "DEER, table 5: the reward is F1 alone to the end.")
    assert rows["paper/deer_f1"] == ("DEER", "`deer_f1` at the size of its paper.")
    assert rows["sft"][0] == "-"
    listed = json.loads(shown(capsys, "recipes", "--json"))
    assert [row["recipe"] for row in listed] == recipe_names()
    assert {row["recipe"]: row["paper"] for row in listed}["sft"] is None


def test_every_setting_is_listed_with_default_and_meaning(capsys):
    heads = [line for line in shown(capsys, "keys").splitlines() if not line.startswith(" ")]
    names = [head.partition(":")[0] for head in heads]
    assert [name for name in names if ".NAME." not in name] == list(key_names(Recipe))
    assert "data.mix.NAME.source" in names
    head, meaning, *others = shown(capsys, "keys", "rl.kl").splitlines()
    assert head == "rl.kl: one of k3, k1, k2; default k3"
    assert meaning == "    Estimator of that divergence (Schulman)."
    assert others == shown(capsys, "keys", "rl.kl_").splitlines()
    assert "eval.bootstrap: a whole number, >= 1; default 1000" in shown(capsys, "keys", "eval.")
    assert shown(capsys, "keys", "reward.terms.match").startswith("reward.terms: a mapping")


def test_settings_in_json_are_what_a_recipe_holds(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [r for r in json.loads(shown(capsys, "keys", "--json")) if ".NAME." not in r["key"]]
    recipe = load_config(Recipe, None, [f"{r['key']}={json.dumps(r['default'])}" for r in listed])
    assert recipe == Recipe()
    (row,) = json.loads(shown(capsys, "keys", "rl.top_p", "--json"))
    assert (row["type"], row["choices"]) == ("a number", None)
    assert row["bounds"] == [">= 1e-06", "<= 1.0"]


def printing_to(
    stdout: TextIO, *words: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, which prints to a file that takes nothing."""
    return subprocess.run(
        [sys.executable, "-m", "rrgtrain", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=cwd,
        check=False,
    )


def test_files_are_made_whatever_becomes_of_the_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,report,split\na,Clear lungs.,train\n")
    with open("/dev/full", "w") as full:
        done = printing_to(full, "init", "out", "--data", "a.csv", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "out" / "mine.yaml").is_file()) == (0, True)
    assert b"No space left on device; the files of the run are whole" in done.stderr


def test_a_small_demo_is_a_smaller_one_in_a_directory_of_its_own() -> None:
    options = cli.understood(["demo", "--small", "rl.steps=3"])
    assert (options.recipe, str(options.out)) == ("demo_small", "runs/demo-small")
    assert cli.understood(["demo", "--small", "--out", "x"]).out == Path("x")
    assert cli.understood(["demo"]).recipe == "demo"
