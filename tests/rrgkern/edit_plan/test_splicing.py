"""Scripts applied to text: every character that no edit touches stays. Lists and missing full
stops: test_op.py."""

from __future__ import annotations

import re

import pytest

from rrgkern import Edit, Rule, splice
from tests.rrgkern.many_cases import Cases, Choices, for_all


def spans(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S[^.]*\.", text)]


REFERENCE = "Heart is large.  Lungs\nare clear.  "


def edited(report: str, *script: Edit) -> tuple[str, int, list[tuple[str, str, str]]]:
    done = splice(report, spans(report), REFERENCE, spans(REFERENCE), script)
    return done.text, done.first_changed, [tuple(step) for step in done.steps]


def test_deletion_stops_at_a_sentence_that_starts_with_white_space() -> None:
    done = splice("A. B.", [(0, 2), (2, 5)], "", [], [Edit(Rule.DELETION, 0, -1)])
    assert done.text == " B."


def test_an_emptied_report_becomes_the_sentence() -> None:
    assert edited("  A. \n", Edit(Rule.DELETION, 0, 0)) == (
        "Heart is large.",
        0,
        [("deletion", "A.", ""), ("fill", "", "Heart is large.")],
    )
    assert edited(" \n", Edit(Rule.FILL, -1, 0)) == (
        "Heart is large.",
        0,
        [("fill", "", "Heart is large.")],
    )
    assert edited("", Edit(Rule.FILL, -1, 0))[0] == "Heart is large."
    # Text that is no sentence is not ours to remove.
    assert edited("FINDINGS:", Edit(Rule.FILL, -1, 0))[0] == "FINDINGS: Heart is large."


def test_indices_follow_the_list_as_it_stands() -> None:
    script = [
        Edit(Rule.DELETION, 0, -1),
        Edit(Rule.REPLACEMENT, 0, 1),
        Edit(Rule.ADDITION, 2, 0),
        Edit(Rule.DELETION, 1, -1),
        Edit(Rule.CONFLICT, 1, 1),
    ]
    text, first, steps = edited("A. Bee.  C.", *script)
    assert text == "Lungs\nare clear.  Lungs\nare clear."
    assert first == 0
    assert [step[1] for step in steps] == ["A.", "Bee.", "", "C.", "Heart is large."]


def test_copies_go_together_in_the_published_code() -> None:
    assert edited("A. B. A.  C.", Edit(Rule.DELETION_OF_COPIES, 0, -1))[:2] == ("B. C.", 0)
    assert edited("A. A.", Edit(Rule.DELETION_OF_COPIES, 0, 1))[0] == "Lungs\nare clear."


def some_text(choices: Choices, letters: str, least: int, most: int) -> str:
    return "".join(choices.of(letters) for _ in range(least + choices.below(most - least + 1)))


def some_pieces(choices: Choices) -> tuple[tuple[tuple[str, str], ...], str, tuple[int, ...]]:
    """(gap, sentence) pairs, the gap after them, and which sentences to replace, in order."""
    pieces = tuple(
        (some_text(choices, "ab é\n\t", 0, 6), some_text(choices, "xyzé", 1, 4) + ".")
        for _ in range(choices.below(6))
    )
    left = list(range(len(pieces)))
    chosen = [left.pop(choices.below(len(left))) for _ in range(min(choices.below(4), len(left)))]
    return pieces, some_text(choices, "ab é\n\t", 0, 6), tuple(chosen)


@for_all(Cases(some_pieces, 80))
def test_characters_before_the_first_change_and_outside_edits_stay(cases: list) -> None:
    """Replacements only: gaps survive in order, whatever the sentences are."""
    for pieces, tail, chosen in cases:
        report, found = "", []
        for gap, body in pieces:
            report += gap
            found.append((len(report), len(report) + len(body)))
            report += body
        report += tail
        script = [Edit(Rule.REPLACEMENT, i, 0) for i in chosen]
        done = splice(report, found, REFERENCE, spans(REFERENCE), script)
        expected = ""
        for i, (gap, body) in enumerate(pieces):
            expected += gap + ("Heart is large." if i in chosen else body)
        assert done.text == expected + tail
        assert done.text[: done.first_changed] == report[: done.first_changed]
        assert done.first_changed == min((found[i][0] for i in chosen), default=len(report))


@for_all(Cases(some_pieces, 80))
def test_deletions_take_the_space_that_follows_and_additions_come_last(cases: list) -> None:
    """Whatever is not deleted stays in order; what is added stands at the end, apart."""
    for pieces, tail, chosen in cases:
        report, found = "", []
        for gap, body in pieces:
            report += gap
            found.append((len(report), len(report) + len(body)))
            report += body
        report += tail
        script, left = [], list(range(len(pieces)))
        gaps, bodies = [gap for gap, _ in pieces] + [tail], [body for _, body in pieces]
        for i in chosen:
            place = left.index(i)
            script.append(Edit(Rule.DELETION, place, -1))
            left.remove(i)
            del bodies[place]
            after = gaps.pop(place + 1)
            last = place == len(bodies) and not after.strip()
            gaps[place] = gaps[place].rstrip() if last else gaps[place] + after.lstrip()
        done = splice(report, found, REFERENCE, spans(REFERENCE), script)
        expected = "".join(map("".join, zip(gaps, [*bodies, ""], strict=True)))
        assert done.text == expected
        assert done.text[: done.first_changed] == report[: done.first_changed]
        added = splice(
            report, found, REFERENCE, spans(REFERENCE), [Edit(Rule.ADDITION, len(found), 0)]
        )
        if report.strip():
            apart = "" if report[-1].isspace() else " "
            assert added.text == report + apart + "Heart is large."
        else:
            assert added.text == "Heart is large."


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([Edit(Rule.REPLACEMENT, 2, 0)], "edit 0 changes sentence 2, wanted one of the 2 there"),
        ([Edit(Rule.ADDITION, 2, 5)], "edit 0 takes reference sentence 5, wanted one of the 2"),
        ([Edit(Rule.NONE, -1, -1)], "edit 0 has rule"),
    ],
)
def test_scripts_for_another_text_are_refused(script, message) -> None:
    with pytest.raises(ValueError, match=message):
        edited("A. B.", *script)


@pytest.mark.parametrize("bad", [[(0, 9)], [(2, 4), (3, 5)], [(1, 1)], [(3, 5), (0, 2)]])
def test_spans_out_of_order_are_named(bad) -> None:
    with pytest.raises(ValueError, match=r"^sentences\[\d\] is "):
        splice("A. B.", bad, "", [], [])
