"""Parts that denials, doubts and duties are compiled from; `cues` puts them together.

In the notation of `PhraseTable`. `surely` and `wholly` stand for every adverb of their kind.
"""

from __future__ import annotations

import re

ALIASES = {
    word: meant
    for meant, words in {
        "no": "nil zero",
        "negative": "-ve \u2212ve \u2013ve",
        "surely": """
            definitely definitively certainly clearly convincingly confidently reliably distinctly
            conclusively unequivocally positively readily radiographically radiologically obviously
            specifically really safely absolutely certainty confidence thus therefore hence thereby
            truly
        """,
        "wholly": "entirely completely totally fully altogether",
        "very": "extremely exceedingly relatively quite highly fairly rather only",
    }.items()
    for word in words.split()
}
"""Words that are read as another word wherever they stand."""

ADVERB = "with? surely|wholly?"

# The object is seen, or a reader sees it.
SEEN = (
    "seen|identified|visualized|appreciated|demonstrated|detected|noted|shown|visible|evident"
    "|apparent|present|found|discernible|observed|recognized|delineated|confirmed|revealed"
    "|appreciable|discerned|perceived|depicted|perceptible|detectable|identifiable"
)
SEE = (
    "see|identify|visualize|appreciate|demonstrate|detect|find|show|discern|recognize|delineate"
    "|reveal|note|confirm|observe|perceive|depict"
)
STAND_FOR = "represent|reflect|indicate|support|suggest|favor|constitute"
NOT = "not|never|cannot"
NOT_SEEN = f"""
    can|could|have|has? {NOT} yet? be|been? surely? {SEEN},
    {NOT} well seen|identified|visualized|appreciated|evident, no longer surely? {SEEN},
    nowhere to? be? {SEEN}, {NOT} be|been? surely? made out
"""
NOT_SEE = f"""
    can|could|do|does|did? {NOT} yet? surely? {SEE}|{STAND_FOR}|have|include|contain,
    fail|failed|failing|failure|unable|inability to surely? {SEE},
    not able|possible to surely? {SEE}
"""

EXCLUDED = "excluded|ruled|eliminated out?"
EXCLUDE = "exclude|rule|r/o out?"
# Who rules out, or what.
RULED_OUT_BY = f"""
    we|i|finding|appearance|image|cxr|scan|mri|ultrasound|this|these|which|that|it {ADVERB}
    exclude|rule out?,
    chest? x? ray|radiograph|film|view|study|examination|exam|ct {ADVERB} exclude|rule out?,
    ruling out
"""
NOT_EXCLUDED = f"can|could? {NOT} yet? be|been? {ADVERB} {EXCLUDED}, far from be|being? {EXCLUDED}"
NOT_EXCLUDE = f"can|could|would|do|does|did? {NOT} yet? {ADVERB} {EXCLUDE}"
HARD_TO_EXCLUDE = f"""
    would? be? difficult|hard|impossible|unable to {ADVERB} {EXCLUDE},
    not able|possible to {ADVERB} {EXCLUDE}
"""
IS_EXCLUDED = f"""
    is|are|was|were now? {ADVERB} {EXCLUDED}, has|have now? been {ADVERB} {EXCLUDED},
    can now? be {ADVERB} {EXCLUDED}
"""
# A duty, or the word before is none that the tables know.
TO_BE_EXCLUDED = f"be|being {ADVERB} {EXCLUDED}"
MUST_EXCLUDE = f"need|have|ought|must|should to? {ADVERB} {EXCLUDE}"

_LOW = "low|remote|slim|negligible|little|minimal|poor|slight|scant|scanty|scarce|small|weak|faint"
CHANCE = "probability|likelihood|chance|possibility|suspicion"
LOW_CHANCE = f"""
    very? {_LOW} clinical|radiographic|diagnostic? {CHANCE}|evidence|concern of|for?,
    very? {_LOW} index of suspicion of|for?,
    little to suggest|indicate|support, little or|to no evidence|sign|suggestion of|for?,
    hardly|scarcely|barely any? evidence|sign|suggestion of|for
"""
"""One class, whatever the noun: an evidence that is low denies."""
IS_LOW = re.compile(
    r"[^.,;:]{1,80}?\b(?:is|are|was|were|remains?|seems?|appears?)\s+(?:(?!not\b)\w+\s+){0,3}?"
    r"(?:low|remote|slim|negligible|minimal|small|slight|poor|tiny)\b",
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
