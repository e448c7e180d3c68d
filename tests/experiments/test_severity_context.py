"""Severity in its context: the orders of its docstring one by one, the ages, and bad tables."""

from __future__ import annotations

import re

import pytest

from experiments.severity_context import DEFAULT, age_of
from rrgdata.study import Study
from rrgtrain.cli import main
from rrgtrain.errors import RewardError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.experiments.test_mix import CASES

TERM = "experiments.severity_context:in_context"
REFERENCE = "Small left pneumothorax. Tortuous aorta. No pleural effusion. No edema."
NO_PTX, NO_AORTA = REFERENCE.partition(". ")[2], REFERENCE.replace(" Tortuous aorta.", "")
INVENTED = f"{REFERENCE} There is a right rib fracture."
FEW = ["--studies", "12", "data.phantom.train=40"]
OLD, YOUNG, ASKED = "80-year-old man.", "30 yo woman.", "Chest tube, pneumothorax? Fell."


def value(report: str, indication: str, term: str = TERM, **options: str) -> float:
    settings = RewardSettings(terms={term: 1.0}, options={"severity_context": options})
    study = Study("s", "test", REFERENCE, None, (), indication=indication)
    return float(RewardService(settings)([report], [study])["total"][0])


def test_without_a_context_it_is_severity_to_the_bit() -> None:
    for report in (REFERENCE, NO_PTX, NO_AORTA, INVENTED, "", "Normal chest."):
        for unknown in ("", "Chest pain.", "___ year old woman", "6 month old", "12 F catheter"):
            assert value(report, unknown) == value(report, "", "severity")


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
    terms = ", ".join(f"{TERM.replace('in_context', x)}: 1" for x in ("at_80", "at_30", "asked"))
    assert main(["stress", "editgrpo", f"reward.terms={{severity: 1, {terms}}}", *FEW]) == 0
    assert capsys.readouterr().out.count(" 100/0/0") == 4 * 19


def test_ages() -> None:
    told = {"67-year-old": 67, "81 y/o F": 81, "age: 7": 7, "45 yrs old": 45, "9 male": 9}
    told |= dict.fromkeys(("3 cm mass", "999 year old", "XXXX-year-old"))
    assert {text: age_of(text) for text in told} == told


@pytest.mark.parametrize(("old", "new", "line"), CASES["context"])
def test_a_table_that_is_none_is_one_line(tmp_path, old, new, line) -> None:
    (file := tmp_path / "own.yaml").write_text(DEFAULT.read_text().replace(old, new, 1))
    with pytest.raises(RewardError, match=rf"\A[^\n]*{re.escape(line)}[^\n]*\Z"):
        value(REFERENCE, OLD, file=str(file))
