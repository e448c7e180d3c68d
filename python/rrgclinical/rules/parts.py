"""Phrases that deny, doubt, ask or say nothing, and their parts; `cues` puts them together.

In the notation of `PhraseTable`. `surely` and `wholly` stand for every adverb of their kind.
"""

from __future__ import annotations

import re

_MEANT = """
    no: nil zero, negative: -ve \u2212ve \u2013ve,
    surely: definitely definitively certainly clearly convincingly confidently reliably distinctly
        conclusively unequivocally positively readily radiographically radiologically obviously
        specifically really safely absolutely certainty confidence thus therefore hence thereby
        truly,
    wholly: entirely completely totally fully altogether,
    very: extremely exceedingly relatively quite highly fairly rather only,
    seen: identified visualized appreciated detected noted shown visible discernible observed
        recognized delineated revealed appreciable discerned perceived depicted perceptible
        detectable identifiable,
    see: identify visualize appreciate discern recognize delineate observe perceive depict,
    is: are, was: were, has: have, may: might, a: an, in: within, appear: seem,
    thought: felt believed deemed, represent: reflect indicate, show: reveal demonstrate,
    prior: previous preceding, nearly: almost, mostly: largely, hardly: scarcely barely,
    resolved: cleared, vanished: disappeared, difficult: hard, distinguish: differentiate separate,
    distinguished: differentiated separated, evaluate: assess characterize, evaluated: assessed,
    consistent: compatible, suspicious: concerning worrisome, improbable: implausible,
    substantial: considerable, recommended: advised, mimic: simulate, incorrect: wrong false,
    disc: disk, tortuous: ectatic, dilation: dilatation, coarse: coarsened, basilar: basal,
    perihilar: parahilar, lymphadenopathy: adenopathy, cavitary: cavitating, prominence: fullness,
    scar: scarring, neoplasm: tumor, lytic: osteolytic, ruptured: torn, tear: laceration,
    vasculature: vascularity, border: margin outline, shadow: shadowing, widened: wide,
    reduced: diminished, embolism: embolus, obscured: effaced obliterated
"""
ALIASES = {
    word: meant.strip()
    for meant, words in (entry.split(":") for entry in _MEANT.split(","))
    for word in words.split()
}
"""Words that are read as another word wherever they stand."""

ADVERB = "with? surely|wholly?"

# The object is seen, or a reader sees it.
SEEN = "seen|demonstrated|evident|apparent|present|found|confirmed"
SEE = "see|detect|find|show|note|confirm"
STAND_FOR = "represent|reflect|indicate|support|suggest|favor|constitute"
NOT = "not|never|cannot"
NOT_SEEN = f"""
    can|could|has? {NOT} yet? be|been? surely? {SEEN}, {NOT} surely? appear to? be? {SEEN},
    {NOT} well seen|evident, no longer surely? {SEEN}, nowhere to? be? {SEEN},
    {NOT} be|been? surely? made out
"""
NOT_SEE = f"""
    can|could|do|does|did? {NOT} yet? surely? {SEE}|{STAND_FOR}|have|include|contain,
    fail|failed|failing|failure|unable|inability to surely? {SEE},
    not able|possible to surely? {SEE}
"""

EXCLUDED = "excluded|ruled|eliminated out?"
EXCLUDE = "exclude|rule|eliminate|r/o out?"
# Who rules out, or what.
RULED_OUT_BY = f"""
    we|i|finding|appearance|image|cxr|scan|mri|ultrasound|this|these|which|that|it {ADVERB}
    {EXCLUDE}, chest? x? ray|radiograph|film|view|study|examination|exam|ct {ADVERB} {EXCLUDE},
    decubitus|lateral|oblique|dedicated view|film|radiograph {ADVERB} {EXCLUDE}, ruling out
"""
NOT_EXCLUDED = f"can|could? {NOT} yet? be|been? {ADVERB} {EXCLUDED}, far from be|being? {EXCLUDED}"
NOT_EXCLUDE = f"can|could|would|do|does|did? {NOT} yet? {ADVERB} {EXCLUDE}"
HARD_TO_EXCLUDE = f"""
    would|may|can? be? difficult|impossible|unable|inability to {ADVERB} {EXCLUDE},
    would|may|can? be? insufficient|inadequate to {ADVERB} {EXCLUDE},
    fail|failed|failing|failure to {ADVERB} {EXCLUDE},
    {NOT} be? sensitive? able|possible|used|enough|sufficient|adequate to {ADVERB} {EXCLUDE}
"""
IS_EXCLUDED = f"is|was|has|can|may now? be|been? {ADVERB} {EXCLUDED}"
# A duty, or the word before is none that the tables know.
TO_BE_EXCLUDED = f"be|being {ADVERB} {EXCLUDED}"
MUST_EXCLUDE = f"need|have|ought|must|should to? {ADVERB} {EXCLUDE}"

_LOW = "low|remote|slim|negligible|little|minimal|poor|slight|scant|scanty|scarce|small|weak|faint"
CHANCE = "probability|likelihood|chance|possibility|suspicion"
LOW_CHANCE = f"""
    very? {_LOW} clinical|radiographic|diagnostic? {CHANCE}|evidence|concern of|for?,
    very? {_LOW} index of suspicion of|for?, little to suggest|represent|support,
    little or|to no evidence|sign|suggestion of|for?, hardly any? evidence|sign|suggestion of|for
"""
"""One class, whatever the noun: an evidence that is low denies."""
IS_LOW = re.compile(
    r"[^.,;:]{1,80}?\b(?:is|are|was|were|remains?|seems?|appears?)\s+(?:(?!not\b)\w+\s+){0,3}?"
    r"(?:low|remote|slim|negligible|minimal|small|slight|poor|tiny|little|scant|weak|faint)\b",
    re.IGNORECASE,
)
"""What makes a chance low behind its noun and finding."""
TURNED = re.compile(
    r"\s*(?:(?:[^\W_]+ly|quite|yet|at\s+all|it|they|is|are|was|were|been?|any|to|said|called|a|an|the"
    r"|significant|interval|substantial|appreciable|further|definite|complete|apparent|obvious"
    r"|real|true|major|convincing|radiographic|visible|discernible|additional|marked|great"
    r"|lungs?|chest|side|base|film|study|patient|meaningful|notable|clear|evidence\s+of|sign\s+of)\s+)*",
    re.IGNORECASE,
)
"""Words between two denials that undo each other ("not entirely free of")."""

# What undoes a denial, limits it or excepts something from it.
_UNLIKELY = "unlikely|impossible|improbable|implausible|inconceivable|unthinkable|unreasonable"
_DEGREE = "entirely|altogether|completely|wholly|quite|very|so|that|definitively|definitely"
_MORE = "more|larger|greater|bigger|less|smaller|worse|fewer|wider|higher|lower|longer|thicker"
_CHANGE = (
    "clearing|clearance|resolution|regression|improvement|reduction|decrease|decline"
    "|diminution|disappearance|remission|lessening"
)

# Denials that another one right before them undoes: "not free of", "no lack of", "never without".
LACK = """
    without, free of|from, clear|absence|lack|devoid of, clear from, lacking, negative|neg for,
    w / o, spared from|of
"""
# The same, denying nothing or what precedes where they stand alone; and a change for the better,
# whose denial says that the finding is there: "no clearing of".
ALONE = f"denial of, complete? interval? resolution, {_CHANGE} of|in"

AFFIRM = f"""
    no|without doubt|question about|that, without a? doubt, beyond doubt, cannot be denied,
    not lack|lacking|deny|exceed|exceeding|beyond|above,
    fail|failed|failing|failure to clear|resolve|improve|regress,
    no|not|nothing|none|never|without any|anything|much|significantly? {_MORE} than,
    no|not {_MORE} in size|extent|number|degree than,
    no|not|nothing|none any|much? more|less severe|extensive|pronounced|prominent|marked than,
    no|not|nothing|none any|much? more|less significant|conspicuous|apparent|advanced than,
    no|without marked|significant|substantial|definite interval? {_CHANGE} of|in,
    no|without partial|incomplete|further|gradual|continued interval? {_CHANGE} of|in,
    cannot|not be? said|claimed|stated|true|correct that there? is? no|without,
    not the? case|truth|agree|concur that there? is? no, cannot|can not? deny, hardly more than,
    would? be? incorrect|untrue|inaccurate|mistaken that there? is? no, nothing beyond|above|but,
    would? be? incorrect|inaccurate to say|state|claim|conclude that there? is? no,
    nothing else than, no {_CHANGE} is|was? seen|evident in|of, not in excess of,
    no disputing|denying|mistaking|escaping|ignoring,
    or|nor any? significant? interval? change in|of
"""

NOT_UNLIKELY = f"""
    not|never|hardly {_DEGREE}? {_UNLIKELY}, not at all {_UNLIKELY}, not be {_UNLIKELY},
    by|in no means|way {_UNLIKELY}, not|hardly out of the question
"""

UNSETTLED = """
    by|in no means|way be|been? excluded|ruled, hardly excluded|ruled, not to be excluded|ruled,
    neither|cannot be? confirmed|proven|established or|nor excluded|ruled,
    neither|cannot be? excluded or|nor confirmed|proven, cannot be dismissed|discounted|disregarded
"""

# A new statement, of what the words before leave out.
EXCEPT = """
    except for|in|on|at?, aside|apart from, other|elsewhere than, save for?, excepting,
    with the? sole|only|single|possible|notable? exception of, but for, barring, bar a|the|for,
    besides, excluding, outside of|the, anywhere|anyplace but|except|outside, beyond a,
    the? sole|only? exception is|being, not counting|including
"""

EVIDENCE_THAT = re.compile(
    r"\s+(?:(?:clear|definite|convincing|good|radiographic|any|further|real)\s+)*"
    r"(?:evidence|signs?|indications?|suggestions?|proof|hint|reason\s+to\s+\w+)\s+that\b(?!\s+there)",
    re.IGNORECASE,
)
"""Words behind a denial that deny a whole clause ("no evidence that the effusion has cleared")."""
_NOW = (
    r"(?:has|have|is|are|was|were)\s+(?:(?:now|been|truly|really)\s+)*(?:increas|decreas|enlarg|grow"
    r"|improv|progress|chang|wors|larger|smaller|new|stable)\w*+(?!\s+(?!is|in|or|since|on|from)\w)"
)
ASKED_OF = re.compile(
    r"\b(?:causes?|a?etiolog(?:y|ies)|significance|nature|chronicity|acuity|age|origin|source|relevance"
    rf"|importance|sizes?|extents?|stability|severity|change|location|position|{_NOW})\b",
    re.IGNORECASE,
)
"""What may be in doubt of a finding that is there."""
CHANGES = re.compile(rf"\s+th(?:e|is|ese|at|ose)\s[^.;,:]{{1,60}}?\s{_NOW}", re.IGNORECASE)
CONCEDES = re.compile(r"\W*(?:(?:al)?though|while|whereas|despite)\b", re.IGNORECASE)
