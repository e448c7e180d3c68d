"""Reports as other systems hand them on: HL7, RTF, wrong encodings, hyphenated wraps, short forms.

Each way of writing over all findings: what is denied stays denied, what is found is found.
"""

from __future__ import annotations

import pytest

from rrgclinical.labels import OBSERVATIONS, ClassId
from rrgclinical.rules import RulesExtractor, RulesLabeller, join_lines, split_sentences
from rrgclinical.rules.plain import plain, plain_lines

FINDINGS = {
    "Enlarged Cardiomediastinum": "widened mediastinum",
    "Cardiomegaly": "cardiomegaly",
    "Lung Opacity": "opacity",
    "Lung Lesion": "nodule",
    "Edema": "pulmonary edema",
    "Consolidation": "consolidation",
    "Pneumonia": "pneumonia",
    "Atelectasis": "atelectasis",
    "Pneumothorax": "pneumothorax",
    "Pleural Effusion": "pleural effusion",
    "Pleural Other": "pleural thickening",
    "Fracture": "rib fracture",
    "Support Devices": "endotracheal tube",
}
STATUS = {"p": ClassId.POSITIVE, "n": ClassId.NEGATIVE, "u": ClassId.UNCERTAIN}

PARTED = {  # written between "No scoliosis" and "Small X", which are two statements
    "hl7": r"\.br\ .\.br\ \.br\\.br\ \.sp\ \.sp2\ .\.ce\ \X0A\ \X0D\ \X0D0A\ \X0D\\X0A\ ~ .~ ~~",
    "rtf": r"\par \par\pard .\par\par \par\pard\plain\fs20",
    "glued": "\u2461 \u2022 \u25cf \u25aa \uf0b7 .- .-- .* .[ ._ .__ .\u2022",
}
DASHES = ("&ndash;", "&mdash;", "&#8211;", "&#x2014;", "\u2212", "\u2012", "\u2015")
DASHES += ("\u00e2\u20ac\u201c", "\u00e2\u0080\u0094", r"\'96", r"\'97")
BLANKS = ("\u00c2\u00a0", "\u00c2 ", r"\'a0", r"\.in+4\ ".strip(), r"\tab ", r"\H\ ".strip() + " ")
NOT = ("\u02bc", "\u00b4", "\u2032", "`", "\uff07", "\u00e2\u20ac\u2122", "\u00e2\u0080\u0099")
NOT += ("&#8217;", r"\'92", r"\'", "")
DENIED = """
    W/O {f}.|No evid. of {f}.|No def. {f}.|No sig. {f}|No signif. {f}.|No obv. {f}.|Neg. for {f}.
    No lt. {f}.|No rt. {f}.|No bilat. {f}.|No mod. {f}.|No r. {f}|NO EVID. OF {f}|NO LT. {f}.
    {f}? No.|{f}? no|{f}? None.|{f}?No.|{f}\uff1ano|{f}: neg|{f}: neg.
    {f}: N|{f}: N.|{f}: (-)|{f} (-)|{f} (\u2212)|{f} [-]|(-) {f}|{f}=no|{f} no.|{f}\tNo.
    No {f}\uff1b scoliosis.|\uff2e\uff4f {f}\u3002|Is there {f}? No. Scoliosis.|Any {f}? No.
    \u3010No {f}\u3011|\\b No\\b0  {f}.|\\H\\No\\N\\ {f}.|No scoliosis \\T\\ {f}.
    No scoliosis & {f}.|No scoliosis&{f}|Scoliosis &amp; {f} are not seen.|{f} & scoliosis: no
"""
FOUND = """
    {f}? Yes.|{f} (+)|{f}, mod. No scoliosis.|{f} on the rt. No mass.
    SCOLIOSIS: NEG. THERE IS {f}.|{f} lt. No scoliosis.|Small {f} bilat. The heart is normal.
    No scoliosis on lt. Small {f}.|1\uff09No scoliosis 2\uff09Small {f}|No scoliosis\uff1bsmall {f}
    (-) scoliosis. Small {f}.|No scoliosis ---- small {f}|No scoliosis ======= {f}.
    Scoliosis? No. Small {f}.|Scoliosis: N. Small {f}.|{f}, see image no. 12.|Small {f}, no
    Mild {f} and no|Scoliosis (-), {f}.|{f} (+), scoliosis (-).|{f}, scoliosis no.
    SCOLIOSIS NOT SUSP. {f} PRESENT
    {f} is grade 1~2. No scoliosis.
"""
NOT_FOUND = "Is the {f} larger? No.|Worsening {f}? No.|{f} --- none|{f} ------> absent"
DOUBTED = "Poss. {f}.|Prob. {f}.|POSS. {f}.|Susp. {f}.|\uff1f{f}"


def listed(text: str) -> list[str]:
    return [one.strip() for line in text.strip().splitlines() for one in line.strip().split("|")]


def statements() -> list[tuple[str, str]]:
    told = [("n", one) for one in listed(DENIED)] + [("p", one) for one in listed(FOUND)]
    told += [("u", one) for one in listed(DOUBTED)]
    told += [("p", "NO SCOLIOSIS BILAT.\n{f} ON RT."), ("p", "no scoliosis rt.\n{f} lt.")]
    for kind, signs in PARTED.items():
        blank = " " if kind == "rtf" else ""
        told += [("p", f"No scoliosis{sign}{blank}Small {{f}}") for sign in signs.split()]
    told += [("p", f"No scoliosis {dash} small {{f}}.") for dash in DASHES]
    told += [("n", f"No{blank}{{f}}.") for blank in BLANKS]
    return told + [("n", f"There isn{sign}t {{f}}.") for sign in NOT]


def wrong(status: str, statement: str) -> list[str]:
    found = []
    for name, finding in FINDINGS.items():
        for said in (finding, finding.upper()):
            text = statement.replace("{f}", said)
            label = RulesLabeller().label([text])[0][OBSERVATIONS.index(name)]
            if label != STATUS[status]:
                found.append(f"{name} is {ClassId(label).name} in {text!r}")
    return found


@pytest.mark.parametrize(("status", "statement"), statements(), ids=repr)
def test_each_finding_is_read(status: str, statement: str) -> None:
    assert not wrong(status, statement)


@pytest.mark.parametrize("statement", listed(NOT_FOUND))
def test_an_answer_of_no_finds_nothing(statement: str) -> None:
    for name, finding in FINDINGS.items():
        label = RulesLabeller().label([statement.replace("{f}", finding)])[0]
        assert label[OBSERVATIONS.index(name)] != ClassId.POSITIVE, (name, statement)


def test_a_finding_elsewhere_is_denied_alone() -> None:
    for text in ("Lung biopsy neg.", "Heart cath neg.", "Mediastinal node biopsy neg."):
        assert ClassId.NEGATIVE not in RulesLabeller().label([text])[0, :13], text


def broken(finding: str, end: str) -> list[str]:
    """`finding` with a hyphen at each place of its words, two letters from either end."""
    return [
        finding[:place] + end + finding[place:]
        for place in range(2, len(finding) - 1)
        if finding[place - 2 : place + 2].isalpha()
    ]


@pytest.mark.parametrize("end", ["-\n", "-\r\n", "- \n  ", "- ", "\u2010\n", "\xad\n", "-<br>"])
def test_a_word_that_a_wrap_has_parted_is_one(end: str) -> None:
    for name, finding in FINDINGS.items():
        for parted in (one for word in (finding, finding.upper()) for one in broken(word, end)):
            text = f"There is no\n{parted} or\nscoliosis. The heart is normal."
            label = RulesLabeller().label([text])[0][OBSERVATIONS.index(name)]
            assert label == ClassId.NEGATIVE, text
            assert finding in join_lines(text).lower()
            assert finding in " ".join(plain_lines(text).lower().split())
            whole = text.replace(end, "", 1)
            assert len(split_sentences(text)) == len(split_sentences(whole)) == 2
            ours, theirs = RulesExtractor().extract([text]), RulesExtractor().extract([whole])
            assert ours.key.tolist() == theirs.key.tolist()


def test_a_wrap_behind_a_parted_word_stays_a_wrap() -> None:
    text = "THERE IS NO EVIDENCE OF PNEUMOTHORAX OR OF ANY PLEU-\nRAL EFFUSION OR LARGE\nNODULE."
    assert plain_lines(text).count("\n") == 2
    assert (RulesLabeller().label([text])[0] != ClassId.POSITIVE)[:13].all()


def test_compounds_and_what_is_no_word_stay_apart() -> None:
    for text in ("A right-\nsided tube.", "A pre- and a post-operative film."):
        assert "-" in plain(text) and "-" in join_lines(text)


def test_what_looks_like_an_escape_is_none() -> None:
    for text in (r"left\right", r"tube\pain", r"left\base", r"the heart\lungs", "size ~3 cm"):
        assert plain(text) == plain_lines(text) == text


def test_short_forms_at_an_end_are_an_end() -> None:
    for text in (
        "Effusion, rt. No mass.",
        "EFFUSION LT. NO MASS.",
        "Fluid on the l. Mass.",
        "effusion: neg. mass: neg.",
        "Edema poss. The heart is large.",
    ):
        assert len(split_sentences(text)) == 2, text
    assert len(split_sentences("No rt.-sided effusion")) == 1
