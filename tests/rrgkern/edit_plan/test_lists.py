"""Scripts applied to numbered lists and to sentences without a full stop."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import yaml

from rrgkern import Edit, Rule, sentence_body
from rrgkern.edit_plan import places, splicing
from tests.mutants import mutate

REPLACE, DELETE, ADD = Rule.REPLACEMENT, Rule.DELETION, Rule.ADDITION
LIST = "[1. Heart big.] [2. Effusion.] [3. Edema.]"
# name: (report, reference, script, edited report)
EXAMPLES = {
    name: (report, reference, [(Rule[rule], *places) for rule, *places in script], done)
    for name, (report, reference, script, done) in yaml.safe_load(
        Path(__file__).with_name("lists.yaml").read_text()
    ).items()
}


def bracketed(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without its brackets, and the spans that stood in them."""
    plain, spans = "", []
    for piece in text.split("["):
        inside, bracket, rest = piece.partition("]")
        if bracket:
            spans.append((len(plain), len(plain) + len(inside)))
        plain += inside + rest
    return plain, spans


def outcome(module: types.ModuleType, name: str) -> tuple[str, bool]:
    """The edited report, and whether it is the old one up to `first_changed`."""
    x, y, script, _ = EXAMPLES[name]
    (report, spans), (reference, others) = bracketed(x), bracketed(y)
    done = module.splice(report, spans, reference, others, [Edit(*edit) for edit in script])
    return done.text, done.text[: done.first_changed] == report[: done.first_changed]


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_after_its_script(name: str) -> None:
    assert outcome(splicing, name) == (EXAMPLES[name][3], True)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("missing stop", 34),
        ("place keeps its number", 17),
        ("deletion in the middle", 14),
        ("deletion at the end", 26),
        ("a stop before a replacement", 9),
    ],
)
def test_tokens_are_kept_up_to_the_first_character_touched(name: str, first: int) -> None:
    x, y, script, _ = EXAMPLES[name]
    edits = [Edit(*edit) for edit in script]
    done = splicing.splice(*bracketed(x), *bracketed(y), edits)
    assert done.first_changed == first


def test_steps_are_told_without_numbers() -> None:
    report, reference = bracketed(LIST), bracketed("[1. Clear]")
    script = [Edit(REPLACE, 1, 0), Edit(DELETE, 0, -1), Edit(ADD, 2, 0)]
    steps = splicing.splice(*report, *reference, script).steps
    assert [tuple(step) for step in steps] == [
        ("replacement", "Effusion.", "Clear."),
        ("deletion", "Heart big.", ""),
        ("addition", "", "Clear."),
    ]


@pytest.mark.parametrize(
    ("sentence", "body"),
    [
        ("2. No edema.", "No edema"),
        ("(2) No edema", "No edema"),
        ("2)No edema..", "No edema"),
        ("- No edema,", "No edema"),
        ("1. 1.No edema .", "No edema"),
        ("1.5 cm nodule.", "1.5 cm nodule"),
        ("5 p.m. scan", "5 p.m. scan"),
        ("-2 degrees", "-2 degrees"),
        ("No edema?", "No edema?"),
        ("3.", ""),
    ],
)
def test_what_a_sentence_says_has_no_number_and_no_stop(sentence: str, body: str) -> None:
    assert sentence_body(sentence) == body


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("new[len(list_marker(new).text) :]", "new"),
        ("low, high = start + len(marker), ", "low, high = start, "),
        ("high = start + len(marker), end + self.tails[i]", "high = start + len(marker), end"),
        ("        end += self.tails[i]\n", ""),
        ("if marker.number is not None:", "if False:"),
        ("if marker.number < latest:", "if False:"),
        ("latest = marker.number\n", "pass\n"),
        ("(marker.number or 0) + 1", "(marker.number or 0)"),
        ("start = len(self.text[:start].rstrip())", "pass"),
        ("            self._close(len(self.spans) - 1)\n", ""),
        ("self.tails[i] = 0\n        self._close(i - 1)", "self.tails[i] = 0"),
        ("        if follows:\n            self._close(i - 1)\n", ""),
        ('self.between = before if "\\n" in before else " "', "pass"),
        ('before if "\\n" in before else " "', "before"),
        ("gap[len(gap.rstrip()) :]", "gap"),
        ("gap.strip() or ", ""),
        ('blank.count("\\n") >= space.count("\\n")', "True"),
        ("return not (self.marker(i).text or gap.strip()", "return not (gap.strip()"),
        ('gap.strip() or "\\n" in gap)', "gap.strip())"),
        ("or not sentence_body(self.sentence(last))", ""),
        ("if body == bodies[i]", "if self.sentence(k) == self.sentence(i)"),
        ("self.first_changed = min(self.first_changed, start)", "self.first_changed = start"),
        ("if a >= end else (a, b)", "if a > end else (a, b)"),
        ('return "\\n\\n", ""  # a heading', 'return " ", ""'),
        ('or marker[-1].isspace() else " "', 'else ""'),
    ],
)
def test_faults_in_the_splicing_die(old: str, new: str) -> None:
    mutant = mutate(splicing, old, new)
    assert any(outcome(mutant, name) != (EXAMPLES[name][3], True) for name in EXAMPLES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(?=\s|[^\W\d_]|$)", ""),
        (r"[-*\u2022]\s+", r"\Z."),
        (r"[.!?][\"')\]]*$", r"[.!?]$"),
        (r'.rstrip(" \t\n,;:") + "."', ' + "."'),
        ("{number}", "1"),
        (r'.rstrip(" \t\n.,;:")', ""),
    ],
)
def test_faults_in_the_parts_of_a_sentence_die(old: str, new: str) -> None:
    parts = mutate(places, old, new)
    mutant = mutate(splicing, "# a heading", "# a heading")
    for name in ("list_marker", "sentence_body", "with_stop"):
        setattr(mutant, name, getattr(parts, name))
    assert any(outcome(mutant, name) != (EXAMPLES[name][3], True) for name in EXAMPLES)
