"""Severity in its context: the orders of its docstring one by one, the ages, and bad tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rrgclinical import severity
from rrgdata.study import Study
from rrgtrain.cli import main
from rrgtrain.errors import RewardError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

TABLE = Path(severity.__file__).with_name("significance.yaml").read_text()
REFERENCE = "Small left pneumothorax. Tortuous aorta. No pleural effusion. No edema."
NO_PTX, NO_AORTA = REFERENCE.partition(". ")[2], REFERENCE.replace(" Tortuous aorta.", "")
INVENTED = f"{REFERENCE} There is a right rib fracture."
FEW = ["--studies", "12", "data.phantom.train=40"]
OLD, YOUNG, ASKED = "80-year-old man.", "30 yo woman.", "Chest tube, pneumothorax? Fell."


def value(report: str, indication: str, **options: str | bool) -> float:
    settings = RewardSettings(
        terms={"severity": 1.0}, options={"severity": options or {"context": True}}
    )
    study = Study("s", "test", REFERENCE, None, (), indication=indication)
    return float(RewardService(settings)([report], [study])["total"][0])


def test_without_a_context_it_is_severity_to_the_bit() -> None:
    for report in (REFERENCE, NO_PTX, NO_AORTA, INVENTED, "", "Normal chest."):
        plain = value(report, ASKED + OLD, context=False)
        for unknown in ("", "Chest pain.", "___ year old woman", "6 month old", "12 F catheter"):
            assert value(report, unknown) == plain


def test_an_age_is_a_persons_and_in_years_however_it_is_written() -> None:
    years = ("80Y", "080Y", "80 y/o", "80yo", "80-year-old", "80 y.o.", "aged 80", "Age: 080Y")
    of = ("{}", "{} man, rib fracture", "M/{}. Cough.", "Pt ({})", "3-year-old rib fracture, {} F")
    texts = [text.format(year) for text in of for year in years]
    assert [t for t in texts if value(NO_AORTA, t) != value(NO_AORTA, OLD)] == []
    of = (
        "{}-year-old rib fracture",
        "{} years of cough",
        "{}y ago, CABG {}y ago",
        *("aged {} months", "{} year follow up", "{} yr f/u of nodule", "Pt {} years in remission"),
    )
    texts = [text.replace("{}", year) for text in of for year in ("80", "30")]
    assert [t for t in texts if value(NO_AORTA, t) != value(NO_AORTA, "")] == []


def test_the_orders_that_were_written_before_the_table() -> None:
    denial = REFERENCE.replace(" No pleural effusion.", ""), REFERENCE.replace(" No edema.", "")
    orders = {
        "C2": (value(NO_PTX, ""), value(NO_PTX, ASKED)),
        "C3": (value(INVENTED, ""), value(INVENTED, ASKED)),
        "C4": (value(NO_AORTA, OLD), value(NO_AORTA, YOUNG)),
        "C5": (value(REFERENCE, OLD), value(NO_AORTA, OLD)),
        "C6, old": (value(NO_AORTA, OLD), value(NO_PTX, OLD)),
        "C6, young": (value(NO_AORTA, YOUNG), value(NO_PTX, YOUNG)),
        "C7": (value(denial[1], "Effusion?"), value(denial[1], "Edema?")),
    }
    assert {name for name, (more, less) in orders.items() if not more > less} == set()


def test_stress_shows_that_the_orders_of_severity_hold_in_every_context(capsys) -> None:
    words = ["reward.terms={severity: 1}", "reward.options.severity.context=true"]
    assert main(["stress", "editgrpo", *words, *FEW]) == 0
    out = capsys.readouterr().out
    assert all(f"  severity, {one}" in out for one in ("at 30", "at 80", "all asked"))
    assert out.count(" 100/0/0") == 4 * 19


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("factor: 0.5", "factor: -1", "factor is -1; wanted a number from 0 to 3"),
        ("- from: 65", "- form: 65", "context: ages: unknown key 'form'"),
        ("from: 65", "from: old", "from is 'old'; wanted a number from 0 to 120"),
        ("to: 120", "to: 4", "from 65 to 4 is no age; exchange them"),
        ("[tortuous aorta, a", "[tortuous aorte, a", "unknown finding 'tortuous aorte'; did you"),
        ("[chest tube]", "chest tube", "chest tube is 'chest tube'; wanted a list of names"),
        ("[chest tube]", "['']", "chest tube is ['']; wanted a list of names"),
        ("  ages:", "  years:", "context: unknown key 'years'"),
        ("\ncontext:", "\n_:", "unknown key '_'"),
    ],
)
def test_a_table_that_is_none_is_one_line(tmp_path, old, new, line) -> None:
    (file := tmp_path / "own.yaml").write_text(TABLE.replace(old, new, 1))
    with pytest.raises(RewardError, match=rf"\A[^\n]*{re.escape(line)}[^\n]*\Z"):
        value(REFERENCE, OLD, table=str(file))


def test_a_table_without_a_context_serves_without_one_alone(tmp_path) -> None:
    (file := tmp_path / "own.yaml").write_text(TABLE.partition("\ncontext:")[0])
    assert value(NO_PTX, ASKED, table=str(file)) == value(NO_PTX, ASKED, context=False)
    for options, line in (({"table": str(file)}, "context missing; copy"), ({}, "wanted true or")):
        with pytest.raises(RewardError, match=line):
            value(NO_PTX, ASKED, **options, context="yes" if not options else True)
