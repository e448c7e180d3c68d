"""One of N reports: gains by hand, `generate` that writes it, `eval` that compares it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from rrgclinical.scorecard import read_card
from rrgclinical.severity import SeverityJudgement
from rrgdata.load import open_studies
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.rewards import RewardService
from rrgtrain.run.choose import RULES, Chooser, gains, seeds_of
from rrgtrain.schema import EvalSettings, GenerateSettings, Recipe, RewardSettings
from rrgtrain.train.evaluate import write_reports
from rrgtrain.train.loader import PromptLoader
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import phantoms

LEFT, RIGHT = "There is a small left effusion.", "There is a large right pneumothorax."
STUDIES = [
    [RIGHT, LEFT, LEFT, "Small left effusion. The heart is enlarged."],
    ["", "No effusion.", "No pneumothorax or effusion.", "Normal chest."],
]


@pytest.mark.parametrize("term", ["severity", "match", "entity_f1"])
def test_gains_are_the_term_of_every_pair_and_the_odd_one_out_is_not_chosen(term, monkeypatch):
    rewards = RewardService(RewardSettings(terms={term: 1.0}))
    pairs = [(a, b) for texts in STUDIES for a in texts if a for b in texts if b]
    expected = rewards(*map(list, zip(*pairs, strict=True)))["total"].tolist()
    # a note of each pair would cost more than the pair
    monkeypatch.setattr(SeverityJudgement, "explain", None)
    got = gains(STUDIES, rewards)
    assert [*got[0].flat, *got[1, 1:, 1:].flat] == pytest.approx(expected, abs=1e-12)
    assert (got[1, 0] == -np.inf).all() and not got[1, 1:, 0].any()
    for rule in RULES:  # what says nothing is chosen where all say nothing
        assert 0 not in Chooser(4, rule, rewards)(STUDIES)
        assert Chooser(2, rule, rewards)([["", "N/A"], ["", "Clear."]]) == [int(rule != "mbr"), 1]


def test_the_rules_by_hand() -> None:
    gained = np.array([[[1.0, 0.2, 0.2], [0.3, 1.0, 0.5], [0.1, 0.5, 1.0]]])
    chosen = {name: rule(gained, np.array([[9, 3, 4]])).tolist() for name, rule in RULES.items()}
    # means 0.47, 0.6, 0.53: the first is longest, and not of the half that agrees
    assert chosen == {"mbr": [1], "longest_agreeing": [2]}


def test_generate_writes_one_of_its_candidates(tmp_path, capsys):
    (films := tmp_path / "films").mkdir()
    for k in range(2):
        pixels = np.random.default_rng(k).integers(0, 255, (40, 40), dtype=np.uint8)
        Image.fromarray(pixels).save(films / f"{k}.png")
    tiny_policy().save(tmp_path / "policy")
    small = ["policy.prompt=short", "eval.max_new_tokens=6", "generate.temperature=1"]
    lines = {}
    for name, words in {"one": [], "three": ["--candidates", "3", "--by", "match"]}.items():
        out = tmp_path / f"{name}.jsonl"
        command = ["generate", str(tmp_path / "policy"), str(films), "--out", str(out), *words]
        assert main([*command, *small]) == 0
        lines[name] = [json.loads(line) for line in out.read_text().splitlines()]
    rewards = RewardService(RewardSettings(terms={"match": 1.0}))
    places = Chooser(3, "mbr", rewards)([row["candidates"] for row in lines["three"]])
    for alone, row, place in zip(lines["one"], lines["three"], places, strict=True):
        assert row["candidates"][0] == alone["report"] and len(set(row["candidates"])) > 1
        assert row["chosen"] == place and row["report"] == row["candidates"][place]
        assert row["settings"]["candidates"] == 3 and "candidates" not in alone
    for words, line in (
        (["--candidates", "3", "generate.temperature=0"], "for them to differ a temperature"),
        (["--candidates", "0"], "wanted 1 to 1000"),
        (["--choose", "mbr"], "of --candidates N"),
        (["--candidates", "3", "--by", "blue"], "blue"),
        (["--candidates", "3", "--by", "cider"], "cider failed: there are no training"),
        (["--candidates", "4", "--by", "match"], "name another file by --out"),
    ):
        assert main([*command[:5], *small, *words]) == 2
        assert line in capsys.readouterr().err.splitlines()[-1]


def test_eval_compares_one_sample_and_the_chosen_of_n_with_the_greedy_report(tmp_path, capsys):
    tiny_policy().save(tmp_path / "policy")
    small = ["data.source=iu_xray", f"data.root={phantoms()}", "data.images=none"]
    small += ["policy.prompt=short", "eval.max_new_tokens=6", "eval.meteor=false"]
    small += ["eval.bootstrap=20", "generate.temperature=1"]
    command = ["eval", "--from", str(tmp_path / "policy"), *small]
    out = tmp_path / "three"
    assert main([*command, "--out", str(out), "--candidates", "3", "--by", "bleu1"]) == 0
    names = ["policy", "policy, one sample", "policy, mbr of 3"]
    card = read_card(out / "metrics.json")
    assert card.systems[:3] == names
    pairs = [(c.first, c.second) for c in card.comparisons]
    assert {(names[0], names[2]), (names[1], names[2])} <= set(pairs)
    assert "policy, mbr of 3 - policy, one sample" in capsys.readouterr().out
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    written = {name: [r["report"] for r in rows if r["system"] == name] for name in names}
    policy, bleu = tiny_policy(), RewardService(RewardSettings(terms={"bleu1": 1.0}))
    texts, _ = write_reports(
        policy,
        PromptLoader(policy, "short"),
        open_studies(load_config(Recipe, None, small).data, tmp_path)["test"],
        EvalSettings(max_new_tokens=6),
        draw=GenerateSettings(temperature=1.0),
        seeds=lambda study: seeds_of(0, study.id, 3),
    )
    groups = [texts[k : k + 3] for k in range(0, len(texts), 3)]
    chosen = Chooser(3, "mbr", bleu)(groups)
    assert written[names[1]] == [group[0] for group in groups]
    assert written[names[2]] == [group[k] for group, k in zip(groups, chosen, strict=True)]
    assert any(chosen) and written[names[0]] != written[names[1]]
    assert main([*command, "--out", str(tmp_path / "no"), "--candidates", "1"]) == 2
    assert "--candidates 1 compares nothing; use 2 or more" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "no"), "--by", "bleu1"]) == 2
    assert "of --candidates N" in capsys.readouterr().err
