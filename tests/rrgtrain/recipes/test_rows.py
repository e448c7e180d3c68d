"""Every command of PAPERS.md runs: paper recipes on a tiny checkpoint, or on a file of reports."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import shlex
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from experiments import masking, masking_check
from rrgclinical import OBSERVATIONS
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.recipes.loaded import loaded
from tests.rrgtrain.recipes.test_recipes import COMMANDS, choices, few

# What a laptop has in place of the papers' data and models; everything else is the recipe's.
HERE = [
    *("data.source=iu_xray", "data.images=none", "data.prior=none", "data.splits={}"),
    *("data.each_image=false", "data.mix={}"),
    *("reward.labeller=rules", "reward.extractor=rules", "reward.terms={label_f1: 1.0}"),
    *("reward.options={}", "reward.starts={}", "policy.dtype=float32", "policy.device=cpu"),
    "policy.lora.rank=0",
    *("eval.limit=2", "eval.max_new_tokens=4", "eval.bootstrap=5", "eval.meteor=false"),
    *("eval.samples=0", "scale.mode=none", "policy.gradient_checkpointing=false"),
]
MASKING = "python -m experiments.masking paper/deer --from SFT"
# Sections that no evaluation reads.
OF_TRAINING = ("rl", "sft", "token_weights", "oracle", "select")
PRINTED = ("micro-F1-14", "macro-recall-14", "sample-precision-14", "BLEU-4, r2gen", "RaTEScore")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that all rows share."""
    path = tmp_path_factory.mktemp("tiny") / "checkpoint"
    tiny_policy().save(path)
    return path


def of(command: str) -> tuple[str, list[str], dict[str, list[str]]]:
    """Verb, words without options, and options of a command."""
    program, verb, *rest = shlex.split(command)
    assert program == "rrgtrain"
    words: list[str] = []
    options: dict[str, list[str]] = {}
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            options.setdefault(word, []).append(rest.pop(0))
        else:
            words.append(word)
    return verb, words, options


@functools.cache
def recipe_of(command: str) -> Recipe:
    _, (name, *settings), _ = of(command)
    return load_config(Recipe, name, settings) if settings else loaded(name)


def test_every_row_has_a_command() -> None:
    verbs = [of(command)[0] for command in COMMANDS if command.startswith("rrgtrain ")]
    assert verbs.count("eval") > 50 and set(verbs) == {"eval", "select", "report"}
    others = [command for command in COMMANDS if not command.startswith("rrgtrain ")]
    assert others == [MASKING]


def test_the_recipe_of_a_command_is_read() -> None:
    for command in {c for c in COMMANDS if c.startswith("rrgtrain ") and " RUN" not in c}:
        recipe_of(command)


def unlike_commands() -> list[str]:
    """Cover every choice that an evaluation here reads by few commands."""
    left: dict[str, set] = {}
    for command in sorted({c for c in COMMANDS if c.startswith("rrgtrain eval")}):
        _, (_, *settings), options = of(command)
        read = dataclasses.asdict(recipe_of(command))
        rl = read["rl"]
        for key in (*OF_TRAINING, *(setting.partition("=")[0] for setting in HERE)):
            *sections, last = key.split(".")
            functools.reduce(dict.__getitem__, sections, read).pop(last)
        # what the start of any command looks at: models of edits, the files of the reference
        left[command] = {rl["algorithm"], rl["reference"], *options, *choices(read, "")}
        if "--from" not in options:
            left[command].update(settings)
    return few(left)


def test_a_command_prints_its_row(tiny, at_home, capsys, monkeypatch):
    commands = unlike_commands()
    assert len(commands) > 8
    for i, command in enumerate(commands):
        (at_home / str(i)).mkdir()
        monkeypatch.chdir(at_home / str(i))
        prints_its_row(command, tiny, capsys)


def prints_its_row(command: str, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, words, options = of(command)
    if "--from" in options:
        more = ["--from", str(tiny), f"data.root={phantoms()}", *HERE]
    else:
        (name, _, _) = options["--predictions"][0].partition("=")
        column = next((w.partition("=")[2] for w in words if "id_column" in w), "id")
        more = ["--predictions", f"{name}={written('p.csv', column, 'prediction')}"]
        by_labels = "eval.truth=labels" in words or words[0].startswith("paper/orapo")
        labels = OBSERVATIONS if by_labels else ()
        more += ["--references", written("r.csv", column, "reference", *labels)]
        more += [setting for setting in HERE if not setting.startswith("eval.limit")]
    status, (printed, told) = main(["eval", *words, "--out", "out", *more]), capsys.readouterr()
    assert status == 0, f"{command}: {told}"
    printed += Path("out/table.csv").read_text("utf-8")  # the terminal has what decides most
    lacking = [name for name in (*PRINTED, "constant template") if name not in printed]
    assert not lacking, f"{command}: {printed}"
    rows = Path("out/predictions.jsonl").read_text().splitlines()
    studies = json.loads(Path("out/metrics.json").read_text())["studies"]
    assert len(rows) == studies == 2, command


@pytest.mark.usefixtures("at_home")
def test_masking_prints_deers_table_6(tiny, capsys, monkeypatch):
    mask_top = Mock(wraps=masking_check.mask_top)
    monkeypatch.setattr(masking_check, "mask_top", mask_top)
    words = shlex.split(MASKING)[3:]
    here = [*HERE, f"data.root={phantoms()}", "token_weights.distil_steps=2"]
    here += ["token_weights.labeller=distilled", "rl.group=2", "rl.max_new_tokens=4"]
    words[words.index("SFT")] = str(tiny)
    assert masking.main([*words, "--studies", "3", *here]) == 0, capsys.readouterr().err
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "6 reports; labels by rules"
    assert [row.split()[0] for row in rows] == ["random", "tfidf", "gradient"]
    values = [float(word) for row in rows for word in row.split()[1::3]]
    assert len(values) == 6 and all(0 <= value <= 1 for value in values)
    weights = [call.args[2] for call in mask_top.call_args_list]
    even, tfidf, gradient = (np.concatenate(weights[i : i + 6]) for i in (0, 6, 12))
    assert len(weights) == 18 and (even == 1).all() and not np.array_equal(tfidf, gradient)
    assert tfidf.min() > 1 and 1 <= gradient.min() < gradient.max()
    assert masking.main([*words, "--studies", "0", *here]) == 2


def written(path: str, column: str, *columns: str) -> str:
    """A file of two studies; a column of labels says that its finding is there."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column, *columns])
        for key in ("a", "b"):
            writer.writerow([key, "Large heart.", *["1"] * (len(columns) - 1)])
    return path
