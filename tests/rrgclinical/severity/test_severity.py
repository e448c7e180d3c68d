"""The reward `severity`: its bounds, its orders on planted errors, its reasons, its table."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import yaml

from rrgclinical.common.errors import UserError
from rrgclinical.severity import AXES, Severity, axes, in_words, load_table, read
from rrgclinical.severity.context import age_of
from rrgclinical.stress import ORDERS, dearer_than_error, gaming_rows, plant, tally
from rrgdata.phantom import PhantomConfig, sample_case, write_report
from tests.real_data import IU_XRAY
from tests.rrgclinical.cases import table

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = ROOT / "python" / "rrgclinical" / "severity" / "significance.yaml"
READER = Severity()


def score(report: str, reference: str) -> float:
    return READER.judge([report], [reference])[0].score


def reports() -> list[str]:
    """Of IU X-Ray where it is, else of phantoms."""
    if IU_XRAY.is_dir():
        annotation = json.loads((IU_XRAY / "annotation.json").read_text())
        return [row["report"] for row in annotation["val"] if "XXXX" not in row["report"]]
    config = PhantomConfig()
    cases = [sample_case(config, (0, 0, number)) for number in range(200)]
    return [write_report(case, case.findings, case.negated, config) for case in cases]


TEXTS = reports()


def test_the_reference_earns_1_an_empty_report_0_and_every_value_lies_between():
    assert {one.score for one in READER.judge(TEXTS, TEXTS)} == {1.0}
    odd = ["Comparison is made.", "Effusion. No effusion.", "x"]
    assert {one.score for one in READER.judge(odd, odd)} == {1.0}
    assert {one.score for one in READER.judge([""] * len(TEXTS), TEXTS)} == {0.0}
    others = [one.score for one in READER.judge([*TEXTS[1:], TEXTS[0]], TEXTS)]
    assert min(others) >= 0.0 and max(others) <= 1.0
    again = [one.score for one in Severity().judge([*TEXTS[1:], TEXTS[0]], TEXTS)]
    assert others == again
    assert 0.0 < score("y", "x") < 1.0


def test_the_orders_are_kept_on_planted_errors():
    planted = plant(TEXTS, 80, seed=1)
    assert len(planted) == 80
    values = []
    for one in planted:
        pairs = list(one.values())
        judged = READER.judge([report for _, report in pairs], [wanted for wanted, _ in pairs])
        values.append({name: j.score for name, j in zip(one, judged, strict=True)})
    short = {}
    for order in ORDERS:
        found = tally(order, values)
        if found.right < 0.99 or found.n < 20:
            short[order.text] = found
    assert not short and len(ORDERS) == 18
    assert dearer_than_error(values) == []


def test_each_error_costs_what_the_table_says():
    reference = "Small left pleural effusion. No pneumothorax."
    left = READER.table.left
    weighed = 0.45 * 0.7
    for report, kept in (
        ("Small right pleural effusion. No pneumothorax.", left["wrong side"]),
        ("Small pleural effusion. No pneumothorax.", left["side unsaid"]),
        ("Possible small left pleural effusion. No pneumothorax.", left["certainty"]),
    ):
        wanted = (weighed * kept + 0.25) / (weighed + 0.25)
        assert score(report, reference) == pytest.approx(wanted), report
    invented = score("Small left pleural effusion. Right pneumothorax.", reference)
    # the one denial is not made, and the invented finding is denied there
    assert invented == pytest.approx((weighed + 0.25 * 0.2) / (weighed + 0.25 + 1.25))


def test_one_invented_finding_beats_four():
    reference = "Large left pleural effusion. No fracture."
    four = ["Free air.", "Pulmonary edema.", "Lung mass.", "Right pneumothorax."]
    values = [score(" ".join(four[:n]), reference) for n in range(1, 5)]
    assert values == sorted(values, reverse=True) and len(set(values)) == 4


def test_a_denial_costs_although_the_reference_denies_all_that_is_acute():
    reference = "No acute cardiopulmonary abnormality. Right pneumothorax."
    dropped = "No acute cardiopulmonary abnormality."
    assert score(f"{dropped} No pneumothorax.", reference) < score(dropped, reference)


def test_gaming_does_not_pay():
    texts = TEXTS[:60]
    values = {
        name: float(np.mean([one.score for one in READER.judge(rows, texts)]))
        for name, rows in gaming_rows(texts).items()
    }
    assert values["empty"] == 0.0
    assert values["all findings named"] < 0.1 and values["all findings named possible"] < 0.1
    assert values["reference 5 times"] < 0.7 and values["reference and more denials"] < 0.8
    assert values["every finding hedged"] < 1.0


def test_reasons_name_right_differing_missed_and_invented():
    reference = "Small left pleural effusion. Mild cardiomegaly. Right pneumothorax. No edema."
    report = "Large left pleural effusion. Mild cardiomegaly. No pneumothorax. Free air. Edema."
    judged = READER.judge([report], [reference])[0]
    note = judged.explain(READER.table)
    assert [one["finding"] for one in note["right"]] == ["small cardiomegaly"]
    (differing,) = note["differs"]
    assert differing["differs"] == ["severity large, not small"] and differing["cost"] > 0
    assert note["missed"] == [{"finding": "right pneumothorax", "cost": 1.25, "denied": True}]
    assert [(x["finding"], x.get("denied", False)) for x in note["invented"]] == [
        ("free air", False), ("edema", True)]  # fmt: skip
    costs = sum(x["cost"] for part in ("differs", "missed", "invented") for x in note[part])
    assert costs == pytest.approx(judged.differ + judged.missed + judged.false, abs=0.003)
    line = in_words(json.loads(json.dumps(note)))
    for word in ("missed: right pneumothorax", "invented: free air", "severity large, not small"):
        assert word in line


def test_axes_count_what_they_say():
    reference = "Small left pleural effusion. Pneumonia. Cardiomegaly. Osteopenia."
    report = "Large right pleural effusion. Possible pneumonia. No cardiomegaly. Pneumothorax."
    report += " Osteopenia. Osteopenia."
    judged = READER.judge([report], [reference])
    counted = axes(judged, READER.read([report]), READER.read([reference]), READER.table)
    rates = {name: float(a[0] / max(1, b[0])) for name, (a, b) in counted.items()}
    assert list(rates) == list(AXES)
    assert rates["critical_found"] == 1.0 and rates["critical_invented"] == 1.0
    assert rates["side_right"] == 0.0 and rates["severity_right"] == 0.0
    assert rates["denied_though_there"] == 0.25 and rates["hedged"] == pytest.approx(1 / 3)
    assert rates["repeated"] == pytest.approx(1 / 6)
    assert rates["length_ratio"] == pytest.approx(len(report.split()) / len(reference.split()))


@pytest.mark.parametrize(("text", "tense"), table("tension"))
def test_tension_is_said_where_it_is_not_denied(text, tense):
    found = [one for one in read(text).present.values() if "pneumothorax" in one.name()]
    assert any(one.tension for one in found) is tense
    assert any("tension" in one.name() for one in found) is tense, "explain says so"


def test_statements_of_one_finding_have_no_order_and_contradiction_costs():
    for said in (
        ("Left pleural effusion has increased.", "Left pleural effusion has decreased."),
        ("Small left pneumothorax.", "Large left pneumothorax."),
        ("Left effusion is stable.", "Left effusion has increased.", "Effusion."),
        ("Left effusion has increased.", "Effusions have decreased."),
    ):
        orders = list(permutations(said))
        for reference in (*said, "Edema."):
            values = {score(" ".join(order), reference) for order in orders}
            assert len(values) == 1, (said, reference)
    both = "Small left pneumothorax. Large left pneumothorax."
    assert score(both, "Large left pneumothorax.") < 0.9
    assert score(both, both) == 1.0
    (one,) = READER.judge([both], ["Large left pneumothorax."])
    assert "severity or change contradicted" in one.explain(READER.table)["differs"][0]["differs"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda t: t["findings"]["minor"].append("cardiomegalia"), "; did you mean cardiomegaly"),
        (lambda t: t["findings"]["minor"].append("edema"), "'edema' stands twice"),
        (lambda t: t["findings"]["urgent"].remove("pneumothorax"), "no tier has pneumothorax"),
        (lambda t: t["tiers"].update(urgent=1.5), "urgent is 1.5; wanted a number from 0 to 1"),
        (lambda t: t["left"].update({"wrong sid": 0.1}), "unknown key 'wrong sid'"),
        (lambda t: t["related"].append(["edema", 0.3]), "wanted .finding, finding, share"),
        (lambda t: t["related"].append([["edema"], "edema", 0.5]), r"unknown finding .'edema'."),
        (lambda t: t.update(normal="much"), "normal is 'much'"),
        (lambda t: t["related"].append([*t["related"][0][:2], 0.9]), "a pair that stands twice"),
        (lambda t: t["related"].append([*t["related"][0][1::-1], 0.9]), "a pair that stands twice"),
        (lambda t: t["related"].append(["edema", "edema", 0.1]), "one finding twice"),
        (lambda t: t["misplaced"].update({"pneumothorax": 0.1}), "'pneumothorax' is no device"),
        (lambda t: t["tiers"].update(dict.fromkeys(t["tiers"], 0)), "every finding weighs 0"),
        (lambda t: t["misplaced"].pop("other"), "other is missing; give devices without"),
        (lambda t: t["findings"].update(benign=None), "wanted a list of names, .. for none"),
        (lambda t: t["tiers"].update({"urgent": 1, "0": None}), "; a decimal has a point"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line(tmp_path, change, line):
    # the last of two shares counted, and a finding that is no device had no effect
    values = yaml.safe_load(PACKAGED.read_text())
    change(values)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match=line) as caught:
        load_table(str(tmp_path / "own.yaml"))
    assert len(str(caught.value).splitlines()) == 1


def test_ages() -> None:
    told = {"67-year-old": 67, "81 y/o F": 81, "age: 7": 7, "45 yrs old": 45, "9 male": 9}
    told["65 years of age, Male"] = 65
    told |= dict.fromkeys(("3 cm mass", "999 year old", "XXXX-year-old"))
    assert {text: age_of(text) for text in told} == told
