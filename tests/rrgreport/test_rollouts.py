"""Facts, marks, redlines and kept samples of a run stand on the page."""

from __future__ import annotations

import base64
import functools
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from rrgclinical import OBSERVATIONS, build_extractor
from rrgreport import (
    EditSample,
    RunSummary,
    Sample,
    System,
    mark_reports,
    read_samples,
    write_report,
    write_samples,
)
from rrgreport.facts import last_rollouts
from rrgreport.redline import ADDED, KEPT, REMOVED, Piece, redline
from rrgreport.run_files import RECORD_FORMAT
from rrgreport.samples import png, weighed_pieces
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


def test_the_verdicts_of_a_sampled_report_stand_beside_it(tmp_path) -> None:
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


def test_highest_lowest_and_some_between_of_what_was_sampled(tmp_path) -> None:
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
    plant(tmp_path, 4, [member(FALSE)], [member(FALSE)])
    assert [r.id for r in last_rollouts(tmp_path / "steps")] == ["s0", "s1"], "told the same"


def test_the_last_record_counts(tmp_path) -> None:
    for step in (999_999, 1_000_002, 3, 1_000_000):
        plant(tmp_path, step, [member(f"The heart is enlarged. Case {step}.")])
    (found,) = last_rollouts(tmp_path / "steps")
    assert found.step == 1_000_002 and "Case 1000002" in found.text


def test_they_are_judged_by_what_the_reward_was_judged_by(tmp_path) -> None:
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


def test_text_of_a_record_is_escaped(tmp_path) -> None:
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


def test_an_empty_report_says_so(tmp_path) -> None:
    plant(tmp_path, 0, [member("")])
    text = page(tmp_path).text
    assert "The report is empty." in text and "No fact was read." in text


def test_without_facts_or_records_there_is_no_such_section(tmp_path) -> None:
    assert last_rollouts(tmp_path / "steps") == []
    assert "rollouts" not in page(tmp_path).text
    plant(tmp_path, 0, [member(FALSE)], notes={})
    assert last_rollouts(tmp_path / "steps") == []
    assert "rollouts" not in page(tmp_path).text


def test_a_file_that_is_no_record_is_named(tmp_path) -> None:
    plant(tmp_path, 0, [member(FALSE)])
    (tmp_path / "steps" / "000001.json.gz").write_bytes(b"x")
    with pytest.raises(UserError, match=r"000001.json.gz is no record of a step"):
        page(tmp_path)


def test_samples_survive_the_disk(tmp_path) -> None:
    image = Image.linear_gradient("L")
    study = Sample(
        "s\u20281",
        [image, png(image)],
        "Größe <b>\u2028normal</b>.",
        {"SFT": "", "RL": "x"},
        indication="cough",
        views=("frontal",),
        labels=[0] * 13 + [1],
    )
    edit = EditSample("s1", "a.", "b.", [("b", "a.", "b.")], "b.", 0.1, None, step=7)
    write_samples(tmp_path / "s.jsonl", [study, edit])
    back, edit_back = read_samples(tmp_path / "s.jsonl")
    assert edit_back == edit
    assert isinstance(back, Sample) and back.images == [png(image)] * 2
    assert (back.id, back.reference, back.outputs) == (study.id, study.reference, study.outputs)
    assert list(back.views) == ["frontal"] and back.labels == study.labels


def test_no_file_means_no_samples_and_a_bad_line_is_named(tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    assert read_samples(path) == []
    for line in ('{"kind": "study"}', '{"kind": "other"}', "{", "[]"):
        path.write_text("\n" + line + "\n")
        with pytest.raises(UserError, match=r"s\.jsonl:2: not a sample"):
            read_samples(path)


def test_a_study_without_its_labels_or_image_is_named(tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    study = Sample("s1", [Image.linear_gradient("L")], "Clear.", {}, labels=[0] * 14)
    postscript = base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n").decode()
    for key, value, told in (
        ("labels", [0] * 13 + [7], r"wanted 14 class ids, 0 to 3"),
        ("labels", [0] * 13, "wanted 14 class ids"),
        ("labels", [0.5] * 14, "wanted 14 class ids"),
        ("images", ["AAAA"], "3 bytes are not an image"),
        ("images", [postscript], "are not an image; wanted PNG bytes"),
    ):
        write_samples(path, [study])
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        with pytest.raises(UserError, match=rf"s\.jsonl:1: not a sample \(.*{told}"):
            read_samples(path)


def test_png_shrinks_and_turns_grey_and_keeps_colour() -> None:
    grey = Image.open(io.BytesIO(png(Image.new("RGB", (2000, 1000), (9, 9, 9)))))
    assert grey.size == (640, 320) and grey.mode == "L"
    colour = Image.open(io.BytesIO(png(Image.new("RGBA", (4, 4), (9, 0, 0, 255)))))
    assert colour.mode == "RGB" and colour.getpixel((0, 0)) == (9, 0, 0)
    with pytest.raises(ValueError, match="5 bytes are not an image"):
        png(b"hello")


OF_MARKS = "The heart is enlarged. No pneumothorax. There is a left pleural effusion."


def marks(report: str, reference: str = OF_MARKS) -> tuple[dict[str, str], list[str]]:
    marked = mark_reports([report], [reference], build_extractor("rules"))[0]
    assert "".join(text for text, _ in marked.pieces) == report
    return {text: mark for text, mark in marked.pieces if text.strip()}, marked.missing


def test_marks_of_a_mixed_report() -> None:
    report = "Two views.  No pneumothorax.\nNo left pleural effusion. There is a rib fracture."
    found, missing = marks(report)
    assert found["Two views."] == "neutral"
    assert found["No pneumothorax."] == "correct"
    assert found["No left pleural effusion."] == "spurious"
    assert found["There is a rib fracture."] == "spurious"
    assert missing == ["The heart is enlarged.", "There is a left pleural effusion."]


def test_marks_of_the_reference_itself_of_half_of_a_sentence_and_of_nothing() -> None:
    found, _ = marks("There is a left pleural effusion and pneumothorax.")
    assert set(found.values()) == {"partly"}
    found, missing = marks(OF_MARKS)
    assert set(found.values()) == {"correct"} and missing == []
    found, missing = marks("")
    assert found == {} and len(missing) == 3
    # without a reference nothing is marked
    assert marks("No pneumothorax.", " ") == ({"No pneumothorax.": "neutral"}, [])
    assert marks("", "") == ({}, [])


def test_redline_replacement_deletion_addition() -> None:
    before = "A one. B two. C three."
    assert redline(before, "A one. X. C three.", [("b", "B two.", "X.")]) == [
        Piece("A one. ", KEPT),
        Piece("B two.", REMOVED, "b"),
        Piece("X.", ADDED, "b"),
        Piece(" C three.", KEPT),
    ]
    assert redline(before, "A one. C three.", [("c", "B two.", "")])[1] == Piece(
        "B two.", REMOVED, "c"
    )
    assert redline(before, before + " D.", [("d", "", "D.")])[-1] == Piece("D.", ADDED, "d")
    assert redline("", "D.", [("e", "", "D.")]) == [Piece("D.", ADDED, "e")]
    assert redline(before, before, []) == [Piece(before, KEPT)]
    steps = [("d", "", "D."), ("b", "D.", "E.")]  # an addition taken back
    assert redline("A.", "A. E.", steps) == [Piece("A.", KEPT), Piece("E.", ADDED, "b")]


def test_redline_compares_words_when_steps_do_not_lead_to_after() -> None:
    pieces = redline("A one. B two.", "A one. C two.", [("b", "not there", "Q.")])
    assert Piece("B ", REMOVED) in pieces and Piece("C ", ADDED) in pieces


sentence = st.sampled_from(["A one.", "B two.", "C three.", "No edema.", "ß ü."])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sentence, max_size=5),
    st.lists(sentence, max_size=5),
    st.lists(st.tuples(st.sampled_from("abcde"), sentence, sentence), max_size=4),
)
def test_redline_always_reads_as_before_and_after(before, after, steps) -> None:
    pieces = redline(" ".join(before), " ".join(after), steps)

    def words(*kinds: str) -> list[str]:
        return " ".join(p.text for p in pieces if p.kind in kinds).split()

    assert words(KEPT, REMOVED) == " ".join(before).split()
    assert words(KEPT, ADDED) == " ".join(after).split()


def test_pieces_join_to_the_text_and_share_characters() -> None:
    spans = [(0, 1), (1, 2), (1, 2), (2, 4), (4, 4)]
    pieces = weighed_pieces("aé b", spans, [1.0, 1.5, 2.5, 1.25, 9.0])
    assert pieces == [("a", 1.0), ("é", 2.5), (" b", 1.25)]
    assert "".join(text for text, _ in pieces) == "aé b"
