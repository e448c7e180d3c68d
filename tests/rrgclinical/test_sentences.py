"""The sentence splitter on texts that fool naive ones."""

from __future__ import annotations

import itertools

import pytest

from rrgclinical.rules import split_sentences

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
    "answer no": ("Effusion? No. Lungs clear.", ["Effusion? No.", "Lungs clear."]),
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
    "a.m. closes": ("Seen at 8 a.m. No edema.", ["Seen at 8 a.m.", "No edema."]),
    "vertebra": ("Fracture of T. 5 vertebra. Stable.", ["Fracture of T. 5 vertebra.", "Stable."]),
    "list without stops": (
        "1. Low lung volumes 2. No pneumothorax.",
        ["1. Low lung volumes", "2. No pneumothorax."],
    ),
    "list, brackets": ("1) Mass 2) Edema", ["1) Mass", "2) Edema"]),
    "list, two brackets": ("(1) mass (old) (2) edema", ["(1) mass (old)", "(2) edema"]),
    "list, 1.4 cm": ("1. Mass 2. 1.4 cm nodule", ["1. Mass", "2. 1.4 cm nodule"]),
    "list, two sentences": ("1. Mass. Edema 2. Knee", ["1. Mass.", "Edema", "2. Knee"]),
    "list, lines": ("1. mass\n2.No edema\n3. old", ["1. mass", "2.No edema", "3. old"]),
    "list after vitamin D": ("1. Low vitamin D. 2. Mass", ["1. Low vitamin D.", "2. Mass"]),
    "rib 2 is no place": ("1. Fracture of rib 2. Edema.", ["1. Fracture of rib 2.", "Edema."]),
    "rib 2, then 2": (
        "1. Broken rib 2. 2. Edema. 3. Mass.",
        ["1. Broken rib 2.", "2. Edema.", "3. Mass."],
    ),
    "a rib before a place": (
        "1. Lucent rib 2. Edema 3. Mass",
        ["1. Lucent rib", "2. Edema", "3. Mass"],
    ),
    "one word in a place": ("1. No. 2. Edema", ["1. No.", "2. Edema"]),
    "a stop before a place": ("1. There is no. 2. Edema", ["1. There is no.", "2. Edema"]),
    "a rib named already": ("1. Lucent 9th rib 2. Edema", ["1. Lucent 9th rib", "2. Edema"]),
    "number out of turn": ("1. Seen on the left 3. Edema.", ["1. Seen on the left 3.", "Edema."]),
    "another style": ("1. Mass on series (2) and edema.", ["1. Mass on series (2) and edema."]),
    "no list": ("Effusion on the right 2. Edema.", ["Effusion on the right 2.", "Edema."]),
    "nothing follows": ("1. Seen on the left 2.", ["1. Seen on the left 2."]),
    "two numbers": ("1. Measures 3 2. Edema.", ["1. Measures 3 2.", "Edema."]),
    "hepatitis B": ("No hepatitis B. Edema.", ["No hepatitis B.", "Edema."]),
    "vitamin D": ("Low vitamin D. Left effusion.", ["Low vitamin D.", "Left effusion."]),
    "a doctor": ("Told to J. Smith at noon. Edema.", ["Told to J. Smith at noon.", "Edema."]),
    "a nurse": ("Told nurse J. Smith. Edema.", ["Told nurse J. Smith.", "Edema."]),
    "a vertebra": ("Fracture of vertebra T. 5.", ["Fracture of vertebra T. 5."]),
    "a list behind its heading": (
        "IMPRESSION: 1. No effusion 2. Edema 3. Hernia",
        ["IMPRESSION:", "1. No effusion", "2. Edema", "3. Hernia"],
    ),
    "a heading and stops": (
        "IMPRESSION: 1. Edema. 2. Mass.",
        ["IMPRESSION:", "1. Edema.", "2. Mass."],
    ),
    "a number of no list": ("Grade: 1. No effusion.", ["Grade: 1.", "No effusion."]),
    "the next number twice": ("1. Grade 2.\n2. Edema.", ["1. Grade 2.", "2. Edema."]),
    "a size before a place": ("1. Nodule 2.\n2. Edema.", ["1. Nodule 2.", "2. Edema."]),
    "an accent apart": ("Normal che\u0301st. Edema.", ["Normal che\u0301st.", "Edema."]),
    "time": ("Called at 5 p.m. today. Stable.", ["Called at 5 p.m. today.", "Stable."]),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES.keys())
def test_split(text, wanted):
    spans = split_sentences(text)
    assert [text[start:end] for start, end in spans] == wanted
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(spans))
