"""Tell failure, edema, blood and pus of something else from those of heart and lung."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.rules.anatomy import Subject
from rrgclinical.rules.concepts import CONCEPT_ID, CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event, Role

_EDEMA = CONCEPT_ID["edema"]
_HEART = CONCEPT_ID["heart"]
_FAILURE = re.compile(r"(?:\w+\s+)?(?:failure|decompensation)s?", re.IGNORECASE)
_SWELLING = re.compile(r"(?:o?edema)s?", re.IGNORECASE)
# Words that leave "failure" the heart's; any other word before it ("kidney", "graft") names what
# else failed.
_MEANT = (
    "visible apparent convincing gross recent true real minimal subtle slight suspected a an"
    " the some any and or by as acute chronic new frank florid overt congestive decompensated"
    " compensated recurrent progressive underlying clinical radiographic developing impending"
    " incipient early mild systolic diastolic ventricular output forward backward sided known"
    " borderline superimposed persistent compatible definite obvious significant evident"
    " further component xxxx ___"
)
_PARTS = (
    r"(?:arm|forearm|leg|foot|feet|ankle|hand|wrist|finger|toe|thigh|cal(?:f|ve)|knee|elbow"
    r"|shoulder|hip|neck|limb|extremit(?:y|ie)|pedal|tibial|pretibial|facial|face|orbit|orbital"
    r"|periorbital|preorbital|eye|eyelid|lid|scrotal|scrotum|genital|labial|penile|vulvar|perineal"
    r"|scalp|tongue|lip|uvula|uvular|palate|pharyn(?:x|geal)|laryn(?:x|geal)|(?:epi|supra|sub)?glott"
    r"(?:is|ic)|cord|airway|trachea|tracheal|mucosa|mucosal|bowel|colon|colonic|intestinal|gastric"
    r"|stomach|gallbladder|mesenter(?:y|ic)|pancreas|pancreatic|peripancreatic|kidney|renal"
    r"|perinephric|liver|hepatic|periportal|bladder|brain|cerebr(?:al|um)|cerebell(?:ar|um)"
    r"|intracranial|vasogenic|cytotoxic|disc|disk|macular?|papilla|retinal?|corneal?|skin|cutaneous"
    r"|dermal|subcutaneous|tissue|muscle|muscular|fascia|fascial|bone|marrow|joint|synovial|wall"
    r"|flank|sacrum|sacral|presacral|breast|abdom(?:en|inal)|trunk|peripheral|pitting|nasal|sinus"
    r"|stoma|stomal|incision|incisional|wound|nerve|lower\s+body|groin|inguinal|axilla|axillary"
    r"|prevertebral|retropharyngeal|paraspinal|parotid|thyroid|ureter|ureteral|uter(?:us|ine)"
    r"|ovar(?:y|ian)|prostate|prostatic|testic(?:le|ular)|optic|spinal|bodies)"
)
_PART_BEFORE = re.compile(rf"\b{_PARTS}s?[\s/-]+\Z", re.IGNORECASE)
_PART_BEHIND = re.compile(
    r"\s+(?:(?:is|are|was|were)\s+)?(?:\w+\s+)?"
    r"(?:of|in|within|involving|about|around|throughout|over|at|along|surrounding|affecting|from)\s+"
    r"(?:(?:the|a|an|his|her|their|its|both|all|left|right|bilateral|upper|lower|distal|proximal"
    rf"|visualized|patient(?:'s)?|four|soft|dependent|chest|anterior|posterior)\s+){{0,5}}{_PARTS}s?\b",
    re.IGNORECASE,
)
_VESSEL = (
    r"(?:carotid|vertebral|cerebral|basilar|brain|intracranial|berry|splenic|renal|hepatic|celiac"
    r"|coeliac|mesenteric|iliac|femoral|popliteal|subclavian|coronary|ventricular|septal)"
    r"(?:\s+(?:arter(?:y|ies|ial)|veins?|venous))?"
)
_ORGAN = (
    r"(?:spleen|splenic|appendi(?:x|ceal)|diverticular|peritoneal|intraperitoneal|retroperitoneal"
    r"|subphrenic|subdiaphragmatic|psoas|pelvic|abdominal|dental|epidural|subdural|subarachnoid"
    r"|perirectal|perianal|intramuscular|gi|gastrointestinal|variceal|chest\s+wall|rib|cardiac"
    r"|myocardial|vaginal|uterine|postpartum|adrenal|crypt|stitch)"
)
# Words of another finding before and behind it, by its concept: there is none of the lung or aorta.
_ELSEWHERE = {
    CONCEPT_ID[name]: (
        re.compile(rf"(?:{before})[\s/-]+\Z", re.IGNORECASE),
        re.compile(rf"\s+(?:{behind})", re.IGNORECASE),
    )
    for name, before, behind in (
        (
            "aortic dissection",
            rf"axillary|axilla|neck|node|nodal|groin|inguinal|surgical|blunt|sharp|{_VESSEL}",
            rf"(?:clips?|of\s+(?:the\s+)?(?:left\s+|right\s+)?(?:{_VESSEL}|axilla|neck))\b",
        ),
        (
            "aortic aneurysm",
            _VESSEL,
            rf"(?:clips?|coils?|(?:of|in)\s+(?:the\s+)?(?:left\s+|right\s+)?{_VESSEL})\b",
        ),
        ("lung abscess", rf"{_PARTS}|{_ORGAN}", rf"(?:of|in)\s+(?:the\s+)?(?:{_PARTS}|{_ORGAN})\b"),
        (
            "pulmonary contusion",
            rf"{_PARTS}|{_ORGAN}",
            rf"(?:of|in)\s+(?:the\s+)?(?:{_PARTS}|{_ORGAN}|heart)\b",
        ),
        (
            "pulmonary hemorrhage",
            rf"{_PARTS}|{_ORGAN}|{_VESSEL}",
            rf"(?:of|in|into)\s+(?:the\s+)?(?:{_PARTS}|{_ORGAN})\b",
        ),
        (
            "pulmonary embolism",
            _VESSEL,
            rf"(?:coils?|protection|(?:of|in)\s+(?:the\s+)?{_VESSEL})\b",
        ),
    )
}
_WORD_BEFORE = re.compile(r"(\w+)[\s-]+\Z")
_LOOK_BACK = 40


def is_elsewhere(events: Sequence[Event], index: int, role: Role, sentence: str) -> bool:
    """True for "liver failure", "failure to thrive", "edema of the foot", "splenic abscess"."""
    event = events[index]
    if role.value != _EDEMA:
        if (words := _ELSEWHERE.get(role.value)) is None:
            return False
        start = max(0, event.start - _LOOK_BACK)
        if words[0].search(sentence, start, event.start):
            return True
        return words[1].match(sentence, event.end) is not None
    said = sentence[event.start : event.end]
    before = sentence[max(0, event.start - _LOOK_BACK) : event.start]
    if _SWELLING.fullmatch(said):
        behind = _PART_BEHIND.match(sentence, event.end)
        return bool(_PART_BEFORE.search(before) or behind)
    if not _FAILURE.fullmatch(said):
        return False
    if re.match(r"\s+(?:to|of)\b", sentence[event.end : event.end + _LOOK_BACK], re.IGNORECASE):
        return True
    word = _WORD_BEFORE.search(before)
    if word is None:
        return False
    if index and events[index - 1].last == event.first:
        return any(_other(known) for known in events[index - 1].roles)
    return not (word[1].endswith("ly") or word[1].lower() in _MEANT.split())


def _other(role: Role) -> bool:
    """True for a structure that is not the heart, and a finding that is not its failure."""
    if role.cue == Cue.FINDING:
        return role.value != _EDEMA and not CONCEPTS[role.value].anatomy
    return (
        role.cue == Cue.SUBJECT
        and isinstance(role.value, Subject)
        and (role.value.anatomy != _HEART)
    )
