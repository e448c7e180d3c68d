"""Every command of PAPERS.md runs: paper recipes on a tiny checkpoint, or on a file of reports."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest

from experiments import masking
from rrgclinical import OBSERVATIONS
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.policy.common import tiny_policy
from tests.rrgtrain.recipes.test_papers import COMMANDS

# What a laptop has in place of the papers' data and models; everything else is the recipe's.
HERE = [
    *("data.source=iu_xray", "data.images=none", "data.prior=none", "data.splits={}"),
    "data.each_image=false",
    *("reward.labeller=rules", "reward.extractor=rules", "reward.terms={label_f1: 1.0}"),
    *(
        "reward.options={}",
        "reward.starts={}",
        "policy.dtype=float32",
        "policy.device=cpu",
        "policy.lora.rank=0",
    ),
    *("eval.limit=2", "eval.max_new_tokens=4", "eval.bootstrap=5", "eval.meteor=false"),
    *("eval.samples=0", "scale.mode=none", "policy.gradient_checkpointing=false"),
]
MASKING = 'make masking ARGS="paper/deer --from SFT"'
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


def test_every_row_has_a_command() -> None:
    verbs = [of(command)[0] for command in COMMANDS if command.startswith("rrgtrain ")]
    assert verbs.count("eval") > 50 and set(verbs) == {"eval", "select", "report"}
    others = [command for command in COMMANDS if not command.startswith("rrgtrain ")]
    assert others == [MASKING]


@pytest.mark.parametrize(
    "command", sorted({c for c in COMMANDS if c.startswith("rrgtrain ") and " RUN" not in c})
)
def test_the_recipe_of_a_command_is_read(command: str) -> None:
    _, (name, *settings), _ = of(command)
    load_config(Recipe, name, settings)


@pytest.mark.parametrize("command", sorted({c for c in COMMANDS if c.startswith("rrgtrain eval")}))
def test_a_command_prints_its_row(
    command: str,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    _, words, options = of(command)
    if "--from" in options:
        more = ["--from", str(tiny), f"data.root={phantoms()}", *HERE]
    else:
        (name, _, _) = options["--predictions"][0].partition("=")
        column = next((w.partition("=")[2] for w in words if "id_column" in w), "id")
        more = ["--predictions", f"{name}={written('p.csv', column, 'prediction')}"]
        labels = OBSERVATIONS if "eval.truth=labels" in words else ()
        more += ["--references", written("r.csv", column, "reference", *labels)]
        more += [setting for setting in HERE if not setting.startswith("eval.limit")]
    assert main(["eval", *words, "--out", "out", *more]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert all(name in printed for name in PRINTED) and "constant template" in printed
    rows = Path("out/predictions.jsonl").read_text().splitlines()
    assert len(rows) == json.loads(Path("out/metrics.json").read_text())["studies"] == 2


def test_masking_prints_deers_table_6(
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = shlex.split(shlex.split(MASKING)[2].removeprefix("ARGS="))
    here = [*HERE, f"data.root={phantoms()}", "token_weights.distil_steps=2"]
    here += ["token_weights.labeller=distilled", "rl.group=2", "rl.max_new_tokens=4"]
    words[words.index("SFT")] = str(tiny)
    assert masking.main([*words, "--studies", "3", *here]) == 0, capsys.readouterr().err
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "6 reports; labels by rules"
    assert [row.split()[0] for row in rows] == ["random", "tfidf", "gradient"]
    values = [float(word) for row in rows for word in row.split()[1::3]]
    assert len(values) == 6 and all(0 <= value <= 1 for value in values)
    assert masking.main([*words, "--studies", "0", *here]) == 2


def written(path: str, column: str, *columns: str) -> str:
    """A file of two studies; a column of labels says that its finding is there."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column, *columns])
        for key in ("a", "b"):
            writer.writerow([key, "Large heart.", *["1"] * (len(columns) - 1)])
    return path
