"""Test a step's inside in the report: token weights, FactS verdicts, rates, quoted edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rrgclinical import OBSERVATIONS
from rrgclinical.facts import RulesFacts
from rrgreport import RunSummary, System, WeightSample, write_report
from rrgreport.cases import read_facts
from rrgreport.html import HeatScale, heat_scale, heaviest_words
from tests.rrgreport.test_html import Page

PIECES = [("There", 1.0), (" is", 1.0), (" an", 1.5), (" eff", 2.0), ("usion", 3.0), (".", 1.25)]


def weighed(pieces: Sequence[tuple[str, float]] = tuple(PIECES), **fields: Any) -> WeightSample:
    given = {"reference": "Effusion.", "step": 4, "reward": 0.5, "advantage": -0.25, **fields}
    return WeightSample("s1", list(pieces), **given)


def labels(**given: int) -> list[int]:
    return [given.get(name.replace(" ", "_"), 0) for name in OBSERVATIONS]


def test_one_scale_for_all_samples_and_1_is_blank() -> None:
    scale = heat_scale([weighed(), weighed([("x", 5.0)])])
    assert (scale.low, scale.high) == (1.0, 5.0)
    assert [scale.shade(w) for w in (0.5, 1.0, 3.0, 5.0, 9.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert scale.legend() == [
        ("0.000", "1.00"),
        ("0.250", "2.00"),
        ("0.500", "3.00"),
        ("0.750", "4.00"),
        ("1.000", "5.00"),
    ]
    assert heat_scale([weighed([("x", 0.5)])]) == HeatScale(0.5, 1.0)
    assert heat_scale([]).shade(3.0) == 0.0


def test_words_are_whole_and_heaviest_first() -> None:
    assert heaviest_words(PIECES, 3) == [("effusion", "3.00"), ("an", "1.50"), ("There", "1.00")]
    twice = [("a", 1.0), (" b", 2.0), (" b", 4.0), ("\n", 9.0)]
    assert heaviest_words(twice) == [("b", "4.00"), ("a", "1.00")]


def test_weights_are_a_picture_and_numbers(tmp_path) -> None:
    path = write_report(tmp_path, RunSummary("T", {"OraPO": System()}), [], [weighed()])
    found = Page(path.read_text(encoding="utf-8"))
    spans = [v for t, n, v in found.attributes if (t, n) == ("span", "style")]
    assert spans == ["--w:0.000"] * 2 + ["--w:0.250", "--w:0.500", "--w:1.000", "--w:0.125"]
    titles = [v for t, n, v in found.attributes if (t, n) == ("span", "title")]
    assert titles[3:5] == ["weight 2.000", "weight 3.000"]
    text = " ".join(found.text.split())
    assert "There is an effusion." in text
    assert "Weights: 1.00 1.50 2.00 2.50 3.00" in text
    assert "reward 0.500, advantage −0.250" in text
    assert "heaviest: effusion 3.00 an 1.50" in text
    swatches = [v for t, n, v in found.attributes if (t, n) == ("i", "style")]
    assert swatches == [f"--w:{i / 4:.3f}" for i in range(5)]


REPORT = "The heart is enlarged. No pleural effusion. There is a pneumothorax."


def test_every_way_a_verdict_can_count() -> None:
    note = RulesFacts().read([REPORT])[0].as_note()
    truth = labels(Cardiomegaly=1, Pleural_Effusion=3, Pneumothorax=2, Edema=1, Fracture=2)
    found = {v.label: v for v in read_facts({**note, "truth": truth}).verdicts}
    assert {n: (v.verdict, v.truth, v.outcome) for n, v in found.items()} == {
        "Cardiomegaly": ("entailed", "positive", "found"),
        "Pneumothorax": ("entailed", "negative", "false alarm"),
        "Pleural Effusion": ("denied", "uncertain", "contradicted, counts twice"),
        "Edema": ("not mentioned", "positive", "missed"),
    }
    assert found["Pneumothorax"].fact == "There is a pneumothorax"
    assert [v.label for v in read_facts({**note, "truth": truth}).verdicts] == [
        n for n in OBSERVATIONS if n in found
    ]
    signs = {v.symbol for v in found.values()}
    assert len(signs) == 3 and "" not in signs
    denied = read_facts({**note, "truth": labels(Pleural_Effusion=2)})
    assert "costs nothing" in {v.outcome for v in denied.verdicts}
