"""Read change, size and the tip of a device from a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rrgclinical.labels import SUPPORT_DEVICES, ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPT_ID, CONCEPTS
from rrgclinical.rules.mention import Mention
from rrgclinical.rules.plain import plain

CHANGES = ("unsaid", "better", "same", "worse")
TIPS = ("unsaid", "right", "wrong")
_BETTER, _SAME, _WORSE = 1, 2, 3
_RIGHT, _WRONG = 1, 2
# Right for a lead, wrong for a line; between them, so that a wrong tip beside it stands.
_VENTRICLE = 1.5
_LOOK_BACK = 60

_CACHE_SENTENCES = 1 << 16
_POSITIVE, _UNCERTAIN = int(ClassId.POSITIVE), int(ClassId.UNCERTAIN)
_DEVICES = frozenset(i for i, c in enumerate(CONCEPTS) if SUPPORT_DEVICES in c.states)
_PACEMAKER = CONCEPT_ID["pacemaker"]
_PARTED = re.compile(r"[;,:]\s|\b(?:but|while|although|whereas|however|and|with)\b", re.IGNORECASE)
# Parts of words in lower case; a sentence that holds none tells of no change.
_STEM_IN = re.compile(
    r"\b(?:un)?(?:chang|stabl|persist|similar|const|remain|new|worse|progr|enlarg|larger"
    r"|greater|incr|devel|small|less|improv|decr|resol|regr|clearing|dimin|reduc)"
)
_DENIAL = r"(?:no|not|without|never)\s+(?:\w+ly\s+|interval\s+|further\s+|longer\s+|been\s+)*"
_BIGGER = (
    r"(?:worse\w*|progress(?:ed|ion|ive|ively|ing|es)|enlarging|larger|increas(?:ed|e|ing|es)"
    r"|greater|developed)"
)
_SMALLER = (
    r"(?:improv(?:ed|ing|ement|es)|decreas(?:ed|e|ing|es)|resolving|regress(?:ed|ion|ing)|smaller"
    r"|clearing|diminish(?:ed|ing)|reduced|partial(?:ly)?\s+resol(?:ved|ution))"
)
_CHANGE = re.compile(
    rf"\b(?=\w)(?:(?P<same>{_DENIAL}(?:change[ds]?|{_BIGGER}|{_SMALLER})"
    r"|stable|unchanged|persist(?:s|ed|ent|ing)?|similar|constant|remain(?:s|ed)?)"
    r"|(?P<worse>new(?:ly)?|worse\w*|progress(?:ed|ion|ive|ively|ing)|enlarging|larger|increasing"
    r"|developed|greater\s+(?:than\s+)?(?:on\s+)?(?:before|prior|previous)"
    r"|(?:interval|has|have|now|slightly|significantly|markedly|mildly)\s+increased?"
    r"|increased?\s+(?:in\s+(?:size|extent|the\s+interval)|since|from|compared))"
    rf"|(?P<better>{_SMALLER}|less\s+(?:prominent|extensive|conspicuous|severe|marked|dense)))\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:worse|larger|greater|smaller|less(?:\s+\w+)?)\s+"
    r"(?:(?:on|in|at|than)\s+)?(?:(?:on|in|at|the)\s+)*(?:left|right)\b",
    re.IGNORECASE,
)
# What makes a comparison one of two days.
_IN_TIME = re.compile(
    r"\b(?:now|since|interval\w*|prior|previous\w*|before|compar\w+|today|yesterday|earlier)\b",
    re.IGNORECASE,
)
_SIZE = re.compile(
    r"(\d+(?:\.\d+)?)(?:\s*(?:mm|cm)?\s*(?:x|by)\s*(\d+(?:\.\d+)?))?"
    r"(?:\s*(?:mm|cm)?\s*(?:x|by)\s*(\d+(?:\.\d+)?))?\s*-?\s*(mm|cm|millimet|centimet)",
    re.IGNORECASE,
)
# Tells how far a thing is from another, and not how large it is.
_DISTANCE = re.compile(
    r"\w*\s*(?:above|below|from|proximal|distal|cranial|caudal|superior|inferior|cephalad)\b",
    re.IGNORECASE,
)
_STEM = r"(?:main\s?-?\s?stem(?:\s+bronch(?:us|i))?|main\s+bronch(?:us|i))"
_NOT_HERE = re.compile(
    # denied, or of another day
    r"\b(?:not|no|without|never|previously|formerly|initially)\s+(?:(?!but\b|and\b)\w+\s+){0,4}\Z"
    # how far it is from there, or its way
    r"|\b(?:above|through|down|along|via|past|travers\w+|descends?|descending)\s+"
    r"(?:(?:the|distal|proximal|mid|left|right)\s+)*\Z"
    r"|\bgastro\s?-?\s?\Z",
    re.IGNORECASE,
)
_END_NAMED = re.compile(
    r"(?:\s+(?:vein|approach|access|line|catheter))*,?\s+with\s+(?:\w+\s+){0,2}?tip\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"\bleads?\b|\bwires?\b|\bpac(?:ing|er)|electrode", re.IGNORECASE)
_PLACED = r"(?:position(?:ed|ing)?|place(?:d|ment)|locat(?:ed|ion)|situated)"
_FIT = r"(?:appropriate|satisfactor|good|adequate|standard|proper|expected|acceptable|optimal|well)"
_BAD_TIP = re.compile(
    r"mal-?\s?position|misplace|misdirect|\b(?:coil|kink|loop)(?:s|ed|ing)?\b|\bo?esophag"
    rf"|\b{_STEM}\b|\bbronchus\b|\btoo\s+(?:high|low|deep|far|shallow|proximal|distal)"
    r"|(?:should|must|needs?|require\w*|recommend\w*|suggest\w*|advis\w*|could|consider)\b[^.;]*?\b"
    r"(?:advanc|retract|withdr|pull|re-?position)\w*"
    r"|side\s?-?\s?(?:hole|port)s?\s+(?:\w+\s+){0,4}?(?:above|at|outside|proximal|near)\b"
    r"|\b(?:in|into|within|toward|at|near)\s+(?:the\s+)?(?:left\s+|right\s+)?"
    r"(?:internal\s+)?(?:neck|jugular|azygos|azygous|carina|hepatic vein)\b"
    rf"|\b(?:not|no\s+longer)\s+(?:\w+\s+){{0,2}}?{_FIT}\w*|\bsub\s?-?{_FIT}\w*"
    r"|\boutside\s+(?:of\s+)?the\b|dislodged|migrated",
    re.IGNORECASE,
)
_IN_VENTRICLE = re.compile(r"\bright\s+ventric", re.IGNORECASE)
_GOOD_TIP = re.compile(
    rf"\b{_FIT}\w*(?:\s+(?:and|or)\s+\w+)?[\s-]+{_PLACED}|\b{_PLACED}\s+(?:\w+\s+)?{_FIT}"
    r"|above\s+the\s+(?:level\s+of\s+the\s+)?carina|cav[oa]\s?-?atrial|\bsvc\b|vena\s+cava"
    r"|\b(?:in|into|within|over|overlying|overlies|reaches)\s+(?:the\s+)?(?:proximal|distal|mid"
    r"|expected)?\s*(?:stomach|gastric)|below\s+the\s+(?:level\s+of\s+the\s+)?(?:left\s+)?"
    r"(?:hemi)?diaphragm|\bunremarkable\s+position",
    re.IGNORECASE,
)


class Details(NamedTuple):
    """Hold what is said of one mention.

    change, tip: indices into CHANGES and TIPS. size: mm, 0 where unsaid.
    """

    change: int = 0
    size: float = 0.0
    tip: int = 0


_UNSAID = Details()
_Cue = tuple[int, int, float]
"""Start and end of a cue in its sentence, and its value."""


@lru_cache(maxsize=_CACHE_SENTENCES)
def read_details(sentence: str) -> tuple[Details, ...]:
    """The details of each mention of `read_sentence`, in its order."""
    mentions = read_sentence(sentence)
    sentence = plain(sentence)
    devices: list[int] = []
    others: list[int] = []
    for i, m in enumerate(mentions):
        # a structure, BLANK, has neither
        if m.status == _POSITIVE or m.status == _UNCERTAIN:
            (devices if m.concept in _DEVICES else others).append(i)
    change: dict[int, float] = {}
    size: dict[int, float] = {}
    tip: dict[int, float] = {}
    if others:
        lowered = sentence.lower()
        if _STEM_IN.search(lowered):
            change = _given(sentence, mentions, others, _changes(sentence, mentions))
        if "cm" in lowered or "mm" in lowered or "timet" in lowered or "limet" in lowered:
            size = _given(sentence, mentions, others, _sizes(sentence))
    if devices:
        paced = {i for i in devices if mentions[i].concept == _PACEMAKER}
        tip = _given(sentence, mentions, devices, _tips(sentence))
        for i, value in tip.items():
            if value == _VENTRICLE:
                tip[i] = _RIGHT if i in paced or _LEAD.search(sentence) else _WRONG
    if not (change or size or tip):
        return (_UNSAID,) * len(mentions)
    return tuple(
        Details(int(change.get(i, 0)), size.get(i, 0.0), int(tip.get(i, 0)))
        for i in range(len(mentions))
    )


def _given(
    sentence: str, mentions: Sequence[Mention], among: Sequence[int], cues: Sequence[_Cue]
) -> dict[int, float]:
    """Give each cue to the mentions of its part of the sentence, or to the last before it."""
    if not cues:
        return {}
    if len(among) == 1:
        return {among[0]: max(value for _, _, value in cues)}
    bounds = [0, *(m.start() for m in _PARTED.finditer(sentence)), len(sentence)]
    part = {i: sum(bound <= mentions[i].start for bound in bounds) for i in among}
    values: dict[int, float] = {}
    for start, _, value in cues:
        own = sum(bound <= start for bound in bounds)
        placed = [i for i in among if part[i] == own]
        placed = placed or [i for i in among if mentions[i].start < start][-1:] or [among[0]]
        for i in placed:
            values[i] = max(value, values.get(i, 0.0))
    return values


def _changes(sentence: str, mentions: Sequence[Mention]) -> list[_Cue]:
    spans = [(m.start, m.end) for m in mentions]
    values = {"better": _BETTER, "same": _SAME, "worse": _WORSE}
    return [
        (m.start(), m.end(), values[m.lastgroup or ""])
        for m in _CHANGE.finditer(sentence)
        # "decreased lung volumes" and "enlarging" of a finding's own words tell of no change
        if not any(start <= m.start() and m.end() <= end for start, end in spans)
        # nor does "left larger than right"
        and not (_BESIDE.match(sentence, m.start()) and not _IN_TIME.search(sentence))
    ]


def _sizes(sentence: str) -> list[_Cue]:
    distances = []
    for m in _SIZE.finditer(sentence):
        if _DISTANCE.match(sentence, m.end()) is None:
            number = max(float(x) for x in m.group(1, 2, 3) if x)
            distances.append((m.start(), m.end(), number * (10 if m[4][0] in "cC" else 1)))
    return distances


def _tips(sentence: str) -> list[_Cue]:
    bad = [
        (m.start(), m.end(), _WRONG)
        for m in _BAD_TIP.finditer(sentence)
        if not _NOT_HERE.search(sentence, max(0, m.start() - _LOOK_BACK), m.start())
        and not _END_NAMED.match(sentence, m.end())
    ]
    good = [
        (m.start(), m.end(), _RIGHT)
        for m in _GOOD_TIP.finditer(sentence)
        if not any(start <= m.start() < end for start, end, _ in bad)
    ]
    ventricle = [(m.start(), m.end(), _VENTRICLE) for m in _IN_VENTRICLE.finditer(sentence)]
    return [*bad, *good, *ventricle]
