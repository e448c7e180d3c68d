"""Facts and verdicts of what was sampled at the last recorded step stand on the page."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from rrgclinical import OBSERVATIONS
from rrgreport import RunSummary, System, write_report
from rrgreport.facts import last_rollouts
from rrgreport.run_files import RECORD_FORMAT
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from rrgtrain.train.step_record import packed
from tests.rrgreport.test_html import EVIL, Page

REFERENCE = "The heart is enlarged. There is edema."
FALSE = "There is a pneumothorax. No pulmonary edema."


def member(text: str, origin: str = "sampled") -> dict[str, Any]:
    return {"text": text, "origin": origin, "competes": origin != "oracle"}


@functools.cache
def facts() -> RewardService:
    return RewardService(RewardSettings(terms={"facts": 2.0}))


def plant(run: Path, step: int, *groups: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    """A record of FactS rewards beside REFERENCE, those of a real reward service."""
    texts = [m["text"] for group in groups for m in group if m["competes"]]
    scores = facts()(texts, [REFERENCE] * len(texts))
    record = {
        "format": RECORD_FORMAT,
        "step": step,
        "groups": [{"study": f"s{g}", "members": group} for g, group in enumerate(groups)],
        "rewards": {name: value.tolist() for name, value in scores.items()},
        "notes": {name: list(notes) for name, notes in scores.notes.items()},
        **changed,
    }
    write(run, record)
    return record


def write(run: Path, record: dict[str, Any]) -> None:
    path = run / "steps" / f"{record['step']:06d}.json.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(packed(record))


def page(run: Path) -> Page:
    return Page(write_report(run, RunSummary("T", {"OraPO": System()}), [], []).read_text("utf-8"))


def test_the_verdicts_of_a_sampled_report_stand_beside_it(tmp_path: Path) -> None:
    plant(tmp_path, 12, [member("The heart is enlarged."), member(FALSE)])
    found = page(tmp_path)
    text = " ".join(found.text.split())
    best, worst = text.partition("Facts of rollouts")[2].split("Study")[1:]
    assert best.startswith(" s0 step 12 FactS 0.556, reward 1.111 Sampled The heart is enlarged.")
    assert "Facts read, 1 The heart is enlarged FactS verdicts of rollout 1 on study s0" in best
    assert "Cardiomegaly entailed positive ✓ found" in best
    assert "Edema not mentioned positive ○ missed" in best
    assert worst.startswith(f" s0 step 12 FactS 0.000, reward 0.000 Sampled {FALSE} Facts read, 2")
    assert "Pneumothorax entailed not mentioned ✕ false alarm" in worst
    assert "Edema denied positive ✕ contradicted, counts twice" in worst
    kinds = [v for t, n, v in found.attributes if (t, n) == ("td", "class")]
    assert kinds == ["right", "lost", "lost", "wrong", "wrong"], "coloured as in a study's table"


def test_highest_lowest_and_some_between_of_what_was_sampled(tmp_path: Path) -> None:
    """Show one of the reports that say the same, none edited and none of the oracle."""
    reports = {
        FALSE: 0.0,
        "The heart is enlarged.": 5 / 9,
        "The heart is enlarged. There is a pneumothorax.": 0.5,
        "The heart is enlarged. There is a pneumothorax. Pleural effusion.": 5 / 11,
        "There is edema. The heart is enlarged. Pleural effusion.": 10 / 11,
        REFERENCE: 1.0,
    }
    sampled = [member(text) for text in reports]
    edited = [member(REFERENCE, "edited"), member(REFERENCE, "oracle")]
    record = plant(tmp_path, 3, [*sampled[:4], *edited], [*sampled[4:], sampled[5]])
    texts = [m["text"] for g in record["groups"] for m in g["members"] if m["competes"]]
    assert dict(zip(texts, record["rewards"]["facts"], strict=True)) == pytest.approx(reports)
    found = last_rollouts(tmp_path / "steps")
    ranked = sorted(reports, key=lambda text: -reports[text])
    assert [r.text for r in found] == [ranked[place] for place in (0, 2, 3, 5)]
    assert [r.id for r in found] == ["s1", "s0", "s0", "s0"]
    assert [len(r.facts.statements) for r in found] == [2, 1, 2, 2]


def test_two_studies_may_be_told_the_same(tmp_path: Path) -> None:
    plant(tmp_path, 0, [member(FALSE)], [member(FALSE)])
    assert [r.id for r in last_rollouts(tmp_path / "steps")] == ["s0", "s1"]


def test_the_last_record_counts(tmp_path: Path) -> None:
    for step in (999_999, 1_000_002, 3, 1_000_000):
        plant(tmp_path, step, [member(f"The heart is enlarged. Case {step}.")])
    (found,) = last_rollouts(tmp_path / "steps")
    assert found.step == 1_000_002 and "Case 1000002" in found.text


def test_they_are_judged_by_what_the_reward_was_judged_by(tmp_path: Path) -> None:
    """The record's class ids; those of an older version had none, which is said."""
    record = plant(tmp_path, 0, [member(FALSE)])
    positive = [0] * len(OBSERVATIONS)
    positive[OBSERVATIONS.index("Pneumothorax")] = 1
    record["notes"]["facts"][0]["truth"] = positive
    write(tmp_path, record)
    (found,) = last_rollouts(tmp_path / "steps")
    verdicts = {v.label: v.outcome for v in found.facts.verdicts}
    assert verdicts == {"Edema": "costs nothing", "Pneumothorax": "found"}
    del record["notes"]["facts"][0]["truth"]
    write(tmp_path, record)
    (found,) = last_rollouts(tmp_path / "steps")
    assert {v.outcome for v in found.facts.verdicts} == {"not judged"}


def test_text_of_a_record_is_escaped(tmp_path: Path) -> None:
    record = plant(tmp_path, 0, [member("Edema.")])
    record["groups"][0]["study"] = record["groups"][0]["members"][0]["text"] = EVIL
    note = record["notes"]["facts"][0]
    note["facts"] = [EVIL]
    note["labels"]["Edema"] = {"verdict": EVIL, "fact": EVIL}
    del note["truth"]
    write(tmp_path, record)
    found = page(tmp_path)
    assert found.text.count(EVIL) == 5, "study, report, fact, caption, verdict"
    assert [v for _, n, v in found.attributes if n == "title"] == [EVIL]
    assert found.tags["script"] == 1 and found.tags["img"] == 0
    assert not [a for a in found.attributes if a[1].startswith("on")]


def test_an_empty_report_says_so(tmp_path: Path) -> None:
    plant(tmp_path, 0, [member("")])
    text = page(tmp_path).text
    assert "The report is empty." in text and "No fact was read." in text


def test_without_facts_or_records_there_is_no_such_section(tmp_path: Path) -> None:
    assert last_rollouts(tmp_path / "steps") == []
    assert "rollouts" not in page(tmp_path).text
    plant(tmp_path, 0, [member(FALSE)], notes={})
    assert last_rollouts(tmp_path / "steps") == []
    assert "rollouts" not in page(tmp_path).text


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    plant(tmp_path, 0, [member(FALSE)])
    (tmp_path / "steps" / "000001.json.gz").write_bytes(b"x")
    with pytest.raises(UserError, match=r"000001.json.gz is no record of a step"):
        page(tmp_path)
