"""The sentence splitter on texts that fool naive ones."""

from __future__ import annotations

import itertools

import pytest

from rrgtrain.clinical.rules import split_sentences

CASES = {
    "two": ("Heart is normal. Lungs are clear.", ["Heart is normal.", "Lungs are clear."]),
    "doctor": ("Discussed with Dr. Smith. No edema.", ["Discussed with Dr. Smith.", "No edema."]),
    "numbered": ("1. Cardiomegaly. 2. No effusion.", ["1. Cardiomegaly.", "2. No effusion."]),
    "numbered in one word": ("1.There is edema. 2.None.", ["1.There is edema.", "2.None."]),
    "decimal": ("A 1.5 cm nodule. No mass.", ["A 1.5 cm nodule.", "No mass."]),
    "ends in a number": (
        "Fracture of rib 5. Heart is big.",
        ["Fracture of rib 5.", "Heart is big."],
    ),
    "versus": ("Scar vs. atelectasis. Stable.", ["Scar vs. atelectasis.", "Stable."]),
    "de-identified": ("XXXX are clear. XXXX XXXX.", ["XXXX are clear.", "XXXX XXXX."]),
    "lost space": (
        "Left lung apex.There are opacities.",
        ["Left lung apex.", "There are opacities."],
    ),
    "initialism": ("Seen on the U.S. exam. Stable.", ["Seen on the U.S. exam.", "Stable."]),
    "no as a number": ("See image no. 3. No effusion.", ["See image no. 3.", "No effusion."]),
    "answer no": ("Effusion? No. Lungs clear.", ["Effusion?", "No.", "Lungs clear."]),
    "dots": ("No abnormality.. Lungs are clear...", ["No abnormality..", "Lungs are clear..."]),
    "semicolon stays": ("No edema; small effusion.", ["No edema; small effusion."]),
    "wrapped line": (
        "There is a small left\npleural effusion.",
        ["There is a small left\npleural effusion."],
    ),
    "line per sentence": ("Heart size normal\nLungs clear", ["Heart size normal", "Lungs clear"]),
    "blank line": ("no edema\n\nno effusion", ["no edema", "no effusion"]),
    "bullets": ("- no edema\n- no effusion", ["- no edema", "- no effusion"]),
    "heading": ("FINDINGS:\nno edema.", ["FINDINGS:", "no edema."]),
    "tokenised": ("no edema . no effusion .", ["no edema .", "no effusion ."]),
    "quote": ('He said "clear." Stable.', ['He said "clear."', "Stable."]),
    "indented": ("  Clear.  \n\n Stable. ", ["Clear.", "Stable."]),
    "empty": ("", []),
    "white": (" \n\t ", []),
    "stops only": (". . ! -", []),
    "no stop": ("clear lungs", ["clear lungs"]),
    "question": ("Is it edema? Yes!", ["Is it edema?", "Yes!"]),
    "time": ("Called at 5 p.m. today. Stable.", ["Called at 5 p.m. today.", "Stable."]),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES.keys())
def test_split(text, wanted):
    spans = split_sentences(text)
    assert [text[start:end] for start, end in spans] == wanted
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(spans))
