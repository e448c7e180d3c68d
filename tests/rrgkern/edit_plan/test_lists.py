"""Scripts applied to numbered lists and to sentences without a full stop."""

from __future__ import annotations

import types

import pytest

from rrgkern import Edit, Rule, sentence_body
from rrgkern.edit_plan import places, splicing
from tests.mutants import mutate

# Sentences of both texts stand in brackets: (report, reference, script, edited report).
REPLACE, DELETE, ADD = Rule.REPLACEMENT, Rule.DELETION, Rule.ADDITION
LIST = "[1. Heart big.] [2. Effusion.] [3. Edema.]"
EXAMPLES = {
    "missing stop": (
        "[Heart size is normal.] [No pneumonia]",
        "[Heart size is normal.] [No pneumonia.] [Hiatal hernia.]",
        [(ADD, 2, 2)],
        "Heart size is normal. No pneumonia. Hiatal hernia.",
    ),
    "dangling comma": ("[No edema,] ", "[Hernia]", [(ADD, 1, 0)], "No edema. Hernia."),
    "stop in quotes": ('[It is "big."]', "[Hernia!]", [(ADD, 1, 0)], 'It is "big." Hernia!'),
    "place keeps its number": (
        LIST,
        "[1. Edema.] [2. No effusion.]",
        [(REPLACE, 1, 1)],
        "1. Heart big. 2. No effusion. 3. Edema.",
    ),
    "deletion renumbers": (LIST, "", [(DELETE, 0, -1)], "1. Effusion. 2. Edema."),
    "deletion in the middle": (LIST, "", [(DELETE, 1, -1)], "1. Heart big. 2. Edema."),
    "deletion at the end": (LIST, "", [(DELETE, 2, -1)], "1. Heart big. 2. Effusion."),
    "addition takes the next": (
        LIST,
        "[1. Clear]",
        [(ADD, 3, 0)],
        "1. Heart big. 2. Effusion. 3. Edema. 4. Clear.",
    ),
    "delete, then add": (
        LIST,
        "[Clear.]",
        [(DELETE, 0, -1), (ADD, 2, 0)],
        "1. Effusion. 2. Edema. 3. Clear.",
    ),
    "ten becomes nine": (
        "[8. Big.] [9. Effusion.] [10. Edema.] [11. Mass.]",
        "[Clear.]",
        [(DELETE, 0, -1), (REPLACE, 2, 0)],
        "8. Effusion. 9. Edema. 10. Clear.",
    ),
    "numbers stay out of prose": (
        "[Heart big.]",
        "[2) Edema.]",
        [(REPLACE, 0, 0), (ADD, 1, 0)],
        "Edema. Edema.",
    ),
    "an empty report": ("", "[(3) Edema]", [(Rule.FILL, -1, 0)], "Edema."),
    "lines": (
        "[1. Big]\n[2. Effusion]\n[3. Edema]",
        "[Clear]",
        [(DELETE, 1, -1), (ADD, 2, 0)],
        "1. Big.\n2. Edema.\n3. Clear.",
    ),
    "lines, also when one is left": (
        "[1. Big.]\n\n[2. Mass.]",
        "[Clear.]",
        [(DELETE, 0, -1), (ADD, 1, 0)],
        "1. Mass.\n\n2. Clear.",
    ),
    "a list in one line": (
        "[1. Big.]  [2. Mass.]",
        "[Clear.]",
        [(ADD, 2, 0)],
        "1. Big.  2. Mass. 3. Clear.",
    ),
    "lines and a trailing space": (
        "Findings:\n  [1) Big.] ",
        "[Clear.]",
        [(ADD, 1, 0)],
        "Findings:\n  1) Big.\n  2) Clear.",
    ),
    "lines with a line break at the end": (
        "[1. Big.]\n[2. Mass.]\n",
        "[Clear.]",
        [(ADD, 2, 0)],
        "1. Big.\n2. Mass.\n3. Clear.",
    ),
    "brackets": (
        "[(1) Big.] [(2) Mass.] [(3) Edema.]",
        "[1. Clear.]",
        [(REPLACE, 0, 0), (DELETE, 1, -1), (ADD, 2, 0)],
        "(1) Clear. (2) Edema. (3) Clear.",
    ),
    "no space behind the number": (
        "[1.Big.] [2.Mass.]",
        "[8 mm nodule.]",
        [(REPLACE, 0, 0), (ADD, 2, 0)],
        "1. 8 mm nodule. 2.Mass. 3. 8 mm nodule.",
    ),
    "bullets": (
        "[- Big]\n[- Mass]",
        "[1. Clear.]",
        [(REPLACE, 0, 0), (ADD, 2, 0)],
        "- Clear.\n- Mass.\n- Clear.",
    ),
    "rest of a place takes its number": (
        "[1. Chest.] [Mass.] [2. Knee.]",
        "",
        [(DELETE, 0, -1)],
        "1. Mass. 2. Knee.",
    ),
    "rest of a place, number close by": ("[1.Chest.] [8 mm.]", "", [(DELETE, 0, -1)], "1. 8 mm."),
    "another line is no rest": (
        "[1. Chest.]\n[Mass.]\n[2. Knee.]",
        "",
        [(DELETE, 0, -1)],
        "Mass.\n1. Knee.",
    ),
    "a piece without a word goes along": ("[1. A.] . [B.]", "", [(DELETE, 0, -1)], "1. B."),
    "it goes when the sentence is deleted": ("[A.] . [B.]", "", [(DELETE, 0, -1)], "B."),
    "it goes when the sentence is replaced": ("[A.] . [C.]", "[B.]", [(REPLACE, 0, 0)], "B. C."),
    "text between sentences is no rest": ("[1. A.] x [B.]", "", [(DELETE, 0, -1)], "x B."),
    "an addition goes behind the rest": (
        "[1. Chest.] [Mass]",
        "[Edema.]",
        [(ADD, 2, 0)],
        "1. Chest. Mass. 2. Edema.",
    ),
    "no addition to a list that has ended": (
        "[1. Chest.]\n[Mass.]",
        "[Edema.]",
        [(ADD, 2, 0)],
        "1. Chest.\nMass. Edema.",
    ),
    "the next list keeps its numbers": (
        "[1. Big.] [2. Mass.]\n[Knee.]\n[1. Clear.] [2. Old.]",
        "",
        [(DELETE, 0, -1)],
        "1. Mass.\nKnee.\n1. Clear. 2. Old.",
    ),
    "so does one that goes on lower": ("[3. Big.] [2. Mass.]", "", [(DELETE, 0, -1)], "2. Mass."),
    "a number without a sentence is taken": (
        "[1. Big.] [2.]",
        "[Edema.]",
        [(ADD, 2, 0)],
        "1. Big. 2. Edema.",
    ),
    "a heading": ("[Findings:]", "[Edema.]", [(ADD, 1, 0)], "Findings:\n\nEdema."),
    "a decimal is no number": ("[Mass.]", "[1.5 cm mass.]", [(ADD, 1, 0)], "Mass. 1.5 cm mass."),
    "a stop for who gets another successor": (
        "[Big heart]\n[Mass]\n\n[no edema.]",
        "",
        [(DELETE, 1, -1)],
        "Big heart.\nno edema.",
    ),
    "a stop before a replacement": (
        "[Big heart]\n[Mass]",
        "[no edema]",
        [(REPLACE, 1, 0)],
        "Big heart.\nno edema.",
    ),
    "copies whatever their number and stop": (
        "[1. Mass.] [2. Big.] [3. Mass]",
        "",
        [(Rule.DELETION_OF_COPIES, 0, -1)],
        "1. Big.",
    ),
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
