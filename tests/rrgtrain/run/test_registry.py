"""One registry of metrics, computed wherever a command ends and with every engine."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rrgclinical.metrics import label_report
from rrgclinical.metrics.registry import (
    FIRST,
    HEADLINE,
    LABELS,
    METRICS,
    TERM,
    WORDS,
    MetricDefinition,
    metric_of,
    of_source,
)
from rrgclinical.text import build_tokenization, text_scores
from rrgreport.summary import RunSummary
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.recipe_files import recipe_names
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.service import TERMS
from rrgtrain.schema import Recipe, RewardSettings
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgpolicy.rollout.served import CHAT, Served
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY, phantoms

pytestmark = pytest.mark.usefixtures("at_home")

SMALL = [
    *(*OF_PHANTOM, *SMALL_POLICY, "sft.steps=1", "sft.batch=2", "sft.eval_every=1"),
    *("rl.steps=1", "rl.prompts=1", "rl.group=2", "rl.max_new_tokens=6", "rl.eval_every=1"),
    *("eval.max_new_tokens=6", "eval.bootstrap=10", "eval.samples=1", "eval.meteor=false"),
]
FILES = ("metrics.json", "table.csv", "table.tex", "predictions.jsonl", "summary.json")


def length_gap(reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
    pairs = zip(reports, references, strict=True)
    return np.array([abs(len(a.split()) - len(b.split())) for a, b in pairs], dtype=np.float64)


PLANTED = MetricDefinition("planted length gap", higher=False, measure=length_gap)


def test_every_metric_that_is_computed_or_named_is_in_the_registry() -> None:
    one = np.zeros((1, 14), dtype=np.int8)
    assert set(of_source(LABELS)) == set(label_report(one, one))
    words = text_scores(["a b"], [["a b"]], tokenization=build_tokenization("space"), meteor=False)
    computed = set(words(np.ones((1, 1)))) | set(words.missing)
    assert set(of_source(WORDS)) == computed
    assert set(of_source(TERM)) <= set(TERMS)
    assert metric_of("reward/match").title == "reward: match", "one that is not listed"
    assert {key for choice in FIRST for key in choice} | set(HEADLINE) <= set(METRICS)
    titles = [metric.title for metric in METRICS.values()]
    assert len(set(titles)) == len(titles), "two metrics print alike"
    settings = [load_config(Recipe, name, []) for name in recipe_names()]
    chosen = {cfg.eval.best_by.partition("/")[0] for cfg in [Recipe(), *settings]}
    assert chosen <= set(METRICS)


def test_a_page_of_docs_names_no_metric_that_is_not_listed() -> None:
    root = Path(__file__).resolve().parents[3]
    form = re.compile(r"\b(?:micro|macro|sample)_(?:f1|precision|recall)(?:_\d+)?\b")
    pages = [*root.glob("docs/*.md"), *root.glob("recipes/**/*.yaml"), *root.glob("recipes/*.md")]
    pages += [
        path for room in ("rrgtrain", "rrgreport") for path in root.glob(f"python/{room}/**/*.py")
    ]
    unlisted = {
        f"{path.name}: {name}"
        for path in pages
        for name in form.findall(path.read_text(encoding="utf-8"))
        if name not in METRICS
    }
    assert not unlisted


def test_a_planted_metric_is_a_reward_term_that_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "planted", PLANTED)
    rewards = RewardService(RewardSettings(terms={"planted": 1.0}))
    assert rewards(["a b", "a b c"], ["a b", "a"])["planted"].tolist() == [0.0, -2.0]


def test_a_planted_metric_ends_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo`, which ends as `sft` and `rl`, `eval` and `eval --predictions` leave one page."""
    monkeypatch.setitem(METRICS, "planted", PLANTED)

    def run(*words: str, recipe: str = "", small: Sequence[str] = SMALL) -> None:
        command, *options = words
        assert main([command, *([recipe] if recipe else []), *options, *small]) == 0

    run("demo", "--out", "demo")
    data = [word for word in SMALL if not word.startswith("data.")]
    data += ["data.source=iu_xray", "data.root=demo/data"]
    start = ["--from", "demo/checkpoints/sft"]
    run("eval", *start, "--out", "eval", recipe="editgrpo", small=data)
    rows = "eval/predictions.jsonl"
    scored = ["eval.bootstrap=10", "eval.meteor=false", "eval.cleaning=iu_xray"]
    run("eval", "--predictions", rows, "--references", rows, "--out", "files", small=scored)
    for name in ("demo", "eval", "files"):
        assert [f for f in FILES if not Path(name, f).is_file()] == [], name
        card = json.loads(Path(name, "metrics.json").read_text())
        assert "planted" in {metric["key"] for metric in card["metrics"]}
        summary = RunSummary.load(f"{name}/summary.json")
        every = card["groups"][0]["systems"]
        for system, row in summary.systems.items():
            assert dataclasses.asdict(row.metrics["planted"]) == every[system]["planted"]
            assert row.metrics["planted"].value >= 0
        page = Path(name, "report.html").read_text()
        assert page.index("<table>") < page.index('class="note"') and 'class="lead"' in page
        assert PLANTED.title in page and "constant template" in page[: page.index("</table>")]
        # drawn again from the files alone
        Path(name, "report.html").unlink()
        assert main(["report", name]) == 0
        assert Path(name, "report.html").read_text() == page
    # the reports of a checkpoint, scored from their file: the same numbers, bit for bit
    ran, read = (json.loads(Path(d, "metrics.json").read_text()) for d in ("eval", "files"))
    for part in ("studies", "systems", "metrics", "groups", "findings", "comparisons"):
        assert ran[part] == read[part], part


DATA = [*OF_PHANTOM, f"data.root={phantoms()}", "policy.prompt=short", "eval.meteor=false"]
BATCHES = ["eval.split=train", "eval.limit=3", "eval.batch=2", "eval.max_new_tokens=6"]
BATCHES += ["eval.bootstrap=20", "select.samples=2", "select.batch=2", "select.share=0.5"]
BATCHES += ["rl.max_new_tokens=6"]
START = ["--from", str(tiny_directory())]


@pytest.mark.parametrize(
    ("verb", "asked", "file"), [("eval", 3, "predictions.jsonl"), ("select", 8, "sampled.jsonl")]
)
def test_a_server_writes_what_the_trainer_writes(verb, asked, file, tmp_path):
    with Served(tiny_directory()) as server:
        for engine in ("transformers", "vllm_server"):
            words = [verb, *START, "--out", str(tmp_path / engine), *DATA, *BATCHES]
            assert main([*words, f"rollout.engine={engine}", f"rollout.url={server.url}"]) == 0
        assert server.asked[CHAT] >= asked, "more where it had to be asked again"
    own, served = (tmp_path / engine / file for engine in ("transformers", "vllm_server"))
    assert served.read_bytes() == own.read_bytes()
    assert not (tmp_path / "vllm_server" / "served").exists()
