"""Severity in its context: the orders of its docstring one by one, the ages, and bad tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.severity_context import DEFAULT, age_of, load_context
from rrgclinical.stress import orders_table, plant, values_of
from rrgdata.phantom import PhantomConfig, phantom_reports
from rrgdata.study import Study
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

TERM = "experiments.severity_context:in_context"
REFERENCE = "Small left pneumothorax. Tortuous aorta. No pleural effusion. No edema."
NO_PTX, NO_AORTA = REFERENCE.partition(". ")[2], REFERENCE.replace(" Tortuous aorta.", "")
INVENTED = f"{REFERENCE} There is a right rib fracture."
OLD, YOUNG, ASKED = "80-year-old man.", "30 yo woman.", "Chest tube, pneumothorax? Fell."


def value(report: str, indication: str, term: str = TERM, **options: str) -> float:
    settings = RewardSettings(terms={term: 1.0}, options={"severity_context": options})
    study = Study("s", "test", REFERENCE, None, (), indication=indication)
    return float(RewardService(settings)([report], [study])["total"][0])


@pytest.mark.parametrize("report", [REFERENCE, NO_PTX, NO_AORTA, INVENTED, "", "Normal chest."])
def test_without_a_context_it_is_severity_to_the_bit(report: str) -> None:
    plain = value(report, "", "severity")
    for unknown in ("", "Chest pain.", "___ year old woman", "6 month old", "12 F catheter"):
        assert value(report, unknown) == plain


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
    assert value(NO_AORTA, OLD) > value(NO_AORTA, "50 years old") > value(NO_AORTA, YOUNG)


def test_the_orders_of_severity_hold_in_every_context() -> None:
    names = [f"experiments.severity_context:{name}" for name in ("at_80", "at_30", "asked")]
    service = RewardService(RewardSettings(terms=dict.fromkeys(["severity", *names], 1.0)))
    planted = plant(phantom_reports(PhantomConfig(train=40)), 12)

    def score(reports: list[str], references: list[str]) -> dict[str, np.ndarray]:
        return {name: v for name, v in service(reports, references).items() if name != "total"}

    table = orders_table(values_of(score, planted))
    assert table.count(" 100/0/0") == 4 * 19, table


@pytest.mark.parametrize(
    ("text", "age"),
    [
        *(("67-year-old", 67), ("81 y/o F", 81), ("age: 7", 7), ("45 yrs old", 45), ("9 male", 9)),
        *(("3 cm mass", None), ("999 year old", None), ("XXXX-year-old", None)),
    ],
)
def test_ages(text: str, age: int | None) -> None:
    assert age_of(text) == age


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("factor: 0.5", "factor: 0", "age: [0]: factor is 0; wanted above 0, at most 2"),
        ("from: 65", "form: 65", "age: [0]: has form, factor, findings; wanted factor, findings"),
        ("from: 65", "from: old", "age: [0]: from is 'old'; wanted 0 to 120 years"),
        ("from: 65", "to: 4\n    from: 65", "age: [0]: from 65 to 4 holds no age; exchange them"),
        ("[tortuous aorta", "[tortuous aorte", "unknown finding 'tortuous aorte'; take one of"),
        ("[chest tube]", "chest tube", "indication: asks: chest tube is 'chest tube'; wanted a"),
        ("age:", "ages:", "has ages, indication; wanted age, indication"),
    ],
)
def test_a_table_that_is_none_is_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(DEFAULT.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as error:
        load_context(file)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_table_of_ones_own_and_its_absence(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(DEFAULT.read_text().replace("factor: 0.5", "factor: 1.0", 1))
    assert value(NO_AORTA, OLD, file=str(file)) == value(NO_AORTA, "") != value(NO_AORTA, OLD)
    with pytest.raises(RewardError, match="no table can be read"):
        value(REFERENCE, OLD, file=str(tmp_path / "none.yaml"))
