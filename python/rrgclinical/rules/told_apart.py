"""Tell apart findings that share their words: by what stands beside them in the sentence.

So, too, failure, edema, blood and pus of something else from those of heart and lung.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.rules.concepts import CONCEPT_ID, CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event, Role
from rrgclinical.rules.lookaround import ATTRIBUTES

_FRACTURE, _HEALED = CONCEPT_ID["fracture"], CONCEPT_ID["healed fracture"]
_ATELECTASIS, _COLLAPSE = CONCEPT_ID["atelectasis"], CONCEPT_ID["lobar collapse"]
_SUMMARY = CONCEPT_ID["acute cardiopulmonary abnormality"]
_BONE = CONCEPT_ID["bone abnormality"]
_BONES = CONCEPT_ID["bone"]
_SKELETON = frozenset({_BONES, CONCEPT_ID["soft tissue"]})
_OF_BONES = frozenset({"bone", "degeneration", "spine", "osteopenia"})

_OLD = r"(?:healed|old|remote|chronic|ancient|united|non\s?-?acute)"
# No word of another statement, and none that says the opposite, stands between.
_NOT_OLD = (
    r"(?:is|are|was|were|has|have|with|without|for|from|of|in|but|acute|recent|fresh|new|or|versus"
    r"|not|no|pain|disease)"
)
_OLD_BEFORE = re.compile(rf"\b{_OLD}\b(?:(?!\b{_NOT_OLD}\b)[^;:()])*\Z", re.IGNORECASE)
_OLD_BEHIND = re.compile(
    rf"\s*[,(]?\s*(?:well[\s-]+)?{_OLD}\b"
    rf"|[^;:.]*?\b(?:is|are|was|were|appears?|looks?|seems?|being|which|that)\s+"
    rf"(?:(?!not\b)[a-z]+[\s-]+){{0,4}}?{_OLD}\b",
    re.IGNORECASE,
)
_LUNG = r"(?:lobes?|lobar|lungs?|hemithorax|[lr][ulm]l)"
_COLLAPSED = re.compile(r"(?:.*\s)?collaps(?:e|ed|ing)s?\Z", re.IGNORECASE | re.DOTALL)
_LUNG_BEFORE = re.compile(
    rf"\b{_LUNG}(?:\s+(?:is|are|was|has|have|remains?|appears?|been|now|again|\w+ly))*\s*\Z",
    re.IGNORECASE,
)
_LUNG_BEHIND = re.compile(
    r"\s+(?:(?:of|in|involving|affecting|the|a|an|entire|whole|left|right|both|upper|middle|lower"
    rf"|most|much)\s+)*{_LUNG}\b",
    re.IGNORECASE,
)
_PARTIAL = re.compile(r"\b(?:partial(?:ly)?|sub\s?-?segmental)\s+(?:\w+\s+){0,2}\Z", re.IGNORECASE)
_OF_CHEST = re.compile(r"cardi|pulm|lung|thorac|chest|infiltrat|abdom", re.IGNORECASE)
_LISTED = {Cue.SUBJECT, Cue.AND, Cue.OR, Cue.COMMA, Cue.ASSERT, Cue.PREPOSITION, *ATTRIBUTES}
_ENDS = frozenset({Cue.BREAK, Cue.END})
# The annotators of CheXpert (Irvin et al., 2019) ignore granulomas and calcified nodules.
_GRANULOMA = CONCEPT_ID["granuloma"]
_LESIONS = frozenset({CONCEPT_ID["lung lesion"], CONCEPT_ID["nodular opacity"]})
_MAY_PRECEDE = frozenset({Cue.ASSERT, Cue.COMMA, Cue.PREDICATE})
_MAY_FOLLOW = frozenset({Cue.PREPOSITION, Cue.FINITE, Cue.VERB, Cue.WHICH, Cue.COMMA, Cue.ASSERT})
_FAR = 10
"""Events between a nodule and the word that calls it calcified."""
_CALCIFIED = re.compile(r"(?:\b(\w+)[\s-]+)?\bcalcifi(?:ed|c)\b", re.IGNORECASE)
_DOUBTED = re.compile(r"\b(?:not|non|nor|partially|partly|incompletely|possibly)\b", re.IGNORECASE)
_INSIDE = re.compile(
    r"\s+(?:with|containing)\s+(?:(?:an?|central|dense|internal|coarse|popcorn|punctate|diffuse"
    r"|some|benign|appearing|complete|peripheral|eccentric)\s+){0,3}calcifications?\b",
    re.IGNORECASE,
)


def told_apart(events: Sequence[Event], index: int, concept: int, sentence: str) -> int:
    """The concept that the finding at `index` is, where its words `concept` are of several."""
    if concept == _FRACTURE:
        return _HEALED if _is_old(events, index, sentence) else concept
    if concept == _ATELECTASIS:
        return _COLLAPSE if _is_of_lobe(events[index], sentence) else concept
    if concept == _SUMMARY:
        return _BONE if _is_of_bones(events, index, sentence) else concept
    if concept in _LESIONS:
        return _GRANULOMA if _is_calcified_nodule(events, index, sentence) else concept
    return concept


def _is_old(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True for "old left rib fractures" and "rib fracture, which is healed"."""
    event = events[index]
    before = next((e.end for e in reversed(events[:index]) if Cue.FINDING in e.cues), 0)
    if _OLD_BEFORE.search(sentence, before, event.end):
        return True
    behind = next((e.start for e in events[index + 1 :] if Cue.FINDING in e.cues), len(sentence))
    return _OLD_BEHIND.match(sentence, event.end, behind) is not None


def _is_of_lobe(event: Event, sentence: str) -> bool:
    """True for "left upper lobe collapse", false for "partial collapse"."""
    said = sentence[event.start : event.end]
    if _COLLAPSED.match(said) is None or "segment" in said.lower():
        return False
    if _PARTIAL.search(sentence, 0, event.start):
        return False
    return bool(
        re.match(_LUNG, said, re.IGNORECASE)
        or _LUNG_BEFORE.search(sentence, 0, event.start)
        or _LUNG_BEHIND.match(sentence, event.end)
    )


def _is_calcified_nodule(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True when the lesion at `index` is a nodule that is called calcified."""
    event = events[index]
    if "nod" not in sentence[event.start : event.end].lower():
        return False
    return (
        _called_before(events, index, sentence)
        or _called_behind(events, index, sentence)
        or _INSIDE.match(sentence, event.end) is not None
    )


def _called_before(events: Sequence[Event], index: int, sentence: str) -> bool:
    start = index
    while start and index - start < _FAR:
        cues = events[start - 1].cues
        if not (cues & ATTRIBUTES or cues <= _MAY_PRECEDE):
            break
        start -= 1
    begin = events[start - 1].end if start else 0
    if start and events[start - 1].cues & {Cue.VERB, Cue.SUBJECT}:  # "aorta is calcified, nodule"
        comma = next((event for event in events[start:index] if Cue.COMMA in event.cues), None)
        begin = begin if comma is None else comma.end
    called = _CALCIFIED.search(sentence, begin, events[index].end)
    return called is not None and not _DOUBTED.fullmatch(called[1] or "")


def _called_behind(events: Sequence[Event], index: int, sentence: str) -> bool:
    listed = False
    for place in range(index + 1, min(len(events) - 1, index + _FAR)):
        event = events[place]
        cues = event.cues
        if "calcified" in sentence[event.start : event.end].lower():
            told = sentence[events[place - 1].end : event.start]
            if _DOUBTED.search(told) or Cue.PREDICATE not in cues:
                return False
            follower = events[place + 1]
            return follower.first > event.last or not follower.cues & {
                Cue.FINDING,
                Cue.SUBJECT,
                *ATTRIBUTES,
            }
        if Cue.SUBJECT in cues and listed and not cues & ATTRIBUTES:
            return False
        listed |= Cue.COMMA in cues
        if not (cues & {Cue.SUBJECT, *ATTRIBUTES} or cues <= _MAY_FOLLOW):
            return False
    return False


def _is_of_bones(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True for "the bones are intact with no acute abnormality", if nothing else is named."""
    event = events[index]
    if _OF_CHEST.search(sentence, event.start, event.end):
        return False
    return _all_bones(_behind(events, index)) or _all_bones(_before(events, index))


def _behind(events: Sequence[Event], index: int) -> list[int]:
    """Structures that the finding at `index` is of ("no acute abnormality of the bones")."""
    named: list[int] = []
    for event in events[index + 1 :]:
        cues = event.cues
        if not cues & (_LISTED - {Cue.COMMA}) and (named or Cue.VERB not in cues):
            break  # but "in the visualized bones"
        named += _structures(event)
    follows = len(events) > index + 1 and Cue.PREPOSITION in events[index + 1].cues
    return named if follows else []


def _before(events: Sequence[Event], index: int) -> list[int]:
    """The structures named last before the finding at `index`."""
    named: list[int] = []
    for event in reversed(events[:index]):
        cues = event.cues
        if cues & _ENDS or (named and not cues & _LISTED):
            break
        if Cue.FINDING in cues and not any(
            role.cue == Cue.FINDING and CONCEPTS[role.value].family in _OF_BONES
            for role in event.roles
        ):
            break
        named += _structures(event)
    return named


def _structures(event: Event) -> list[int]:
    return [role.value.anatomy for role in event.roles if role.cue == Cue.SUBJECT]


def _all_bones(structures: Sequence[int]) -> bool:
    return _BONES in structures and _SKELETON.issuperset(structures)


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
_BODY = rf"{_PARTS}|{_ORGAN}"
# Words of another finding before and behind it, and what it is of, by its concept: there is none
# of the lung or aorta.
_ELSEWHERE = {
    CONCEPT_ID[name]: (
        re.compile(rf"(?:{before})[\s/-]+\Z", re.IGNORECASE),
        re.compile(
            rf"\s+(?:{behind}|(?:of|in|into)\s+(?:the\s+)?(?:left\s+|right\s+)?(?:{places}))\b",
            re.IGNORECASE,
        ),
    )
    for name, before, behind, places in (
        (
            "aortic dissection",
            rf"axillary|axilla|neck|node|nodal|groin|inguinal|surgical|blunt|sharp|{_VESSEL}",
            "clips?",
            rf"{_VESSEL}|axilla|neck",
        ),
        ("aortic aneurysm", _VESSEL, "clips?|coils?", _VESSEL),
        ("lung abscess", _BODY, "clips?", _BODY),
        ("pulmonary contusion", _BODY, "clips?", rf"{_BODY}|heart"),
        ("pulmonary hemorrhage", rf"{_BODY}|{_VESSEL}", "clips?", _BODY),
        ("pulmonary embolism", _VESSEL, "coils?|protection", _VESSEL),
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
        return any(_other(role) for role in events[index - 1].roles)
    return not (word[1].endswith("ly") or word[1].lower() in _MEANT.split())


def _other(role: Role) -> bool:
    """True for a structure that is not the heart, and a finding that is not its failure."""
    if role.cue == Cue.FINDING:
        return role.value != _EDEMA and not CONCEPTS[role.value].anatomy
    return role.cue == Cue.SUBJECT and role.value.anatomy != _HEART
