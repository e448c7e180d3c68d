"""Phrases that deny, doubt, ask or say nothing, and their parts; `cues` puts them together.

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
    without, free of|from, clear of, absence of, lack of, lacking, devoid of, negative for, neg for,
    w / o, spared from|of
"""
# The same, denying nothing or what precedes where they stand alone.
ALONE = "denial of, complete? interval? resolution"

# A change for the better, whose denial says that the finding is there: "no clearing of".
CHANGE = f"{_CHANGE} of|in"

AFFIRM = f"""
    no|without doubt|question about|that, without a? doubt, beyond doubt, cannot be denied,
    not lack|lacking|deny, fail|fails|failed|failing|failure to clear|resolve|improve|regress,
    no|not|nothing|none|never|without any|anything|much|significantly? {_MORE} than,
    no|not {_MORE} in size|extent|number|degree than,
    no|not|nothing|none any|much? more|less severe|extensive|pronounced|prominent|marked than,
    no|not|nothing|none any|much? more|less significant|conspicuous|apparent|advanced than,
    no|without marked|significant|substantial|considerable|definite interval? {_CHANGE} of|in,
    no|without partial|incomplete|further|gradual|continued interval? {_CHANGE} of|in,
    cannot|not be? said|claimed|stated|true|correct that there? is|are? no|without,
    not the case|truth that there? is|are? no, not agree|concur that there? is|are? no,
    would? be? wrong|incorrect|false|untrue|inaccurate|mistaken that there? is|are? no,
    would? be? wrong|incorrect|false|inaccurate to say|state|claim|conclude that there? is|are? no,
    can not deny, cannot deny,
    hardly|barely|scarcely more than, nothing beyond|above|but, nothing else than,
    no {_CHANGE} is|was? seen|noted|evident|identified in|of,
    no disputing|denying|mistaking|escaping|ignoring, not exceed|exceeding|beyond|above,
    not in excess of
"""

NOT_UNLIKELY = f"""
    not|never|hardly|scarcely {_DEGREE}? {_UNLIKELY}, not at all {_UNLIKELY},
    not be {_UNLIKELY}, by no means {_UNLIKELY}, in no way {_UNLIKELY},
    not|hardly out of the question
"""

UNSETTLED = """
    by no means be|been? excluded|ruled, in no way be|been? excluded|ruled,
    neither confirmed|proven|established nor excluded|ruled, neither excluded nor confirmed|proven,
    cannot be confirmed|proven or|nor excluded|ruled, cannot be excluded or|nor confirmed|proven,
    hardly|scarcely excluded|ruled, not to be excluded|ruled,
    cannot be dismissed|discounted|disregarded
"""

# A new statement, of what the words before leave out.
EXCEPT = """
    except for|in|on|at?, aside from, apart from, other than, save, save for, excepting,
    with the? sole|only|single|possible|notable? exception of, but for, barring, bar a|an|the|for,
    besides, excluding, outside of|the, elsewhere than, anywhere|anyplace but|except|outside,
    beyond a|an, the? sole|only? exception is|being, not counting|including
"""

# What asks for another examination, and what that would look for.
ADVICE = """
    recommend, recommended, recommendation, recommending, advise, advised, advisable, helpful,
    useful, beneficial, repeat, may|might|would|could help, ct, mri, ultrasound, fluoroscopy,
    imaging, followup, follow up, scan|evaluation|examination|exam|view|film is|are suggested,
    ct|mri|ultrasound|imaging|followup|radiograph|study|workup is|are suggested,
    follow up is|are suggested,
    correlation|comparison|attention|biopsy|bronchoscopy is|are suggested,
    expiratory|decubitus|lateral|oblique|lordotic|additional|dedicated view|film|radiograph,
    can|could|may|might|should|would be performed|obtained|done|used|considered|ordered,
    can|could|may|might|should|would be repeated|taken|acquired|arranged|undertaken, obtain,
    is|are warranted, tomography, sonography, scan
"""

PURPOSE = """
    in|for excluding, exclude, to exclude, rule out, to rule out, for? exclusion of,
    may|might|could better? show|reveal|demonstrate|detect|find|identify|disclose|uncover
"""

AIM = """
    to find|identify|see|confirm|verify|establish|determine|document|demonstrate|show|reveal,
    to visualize|diagnose|uncover|discern|clarify|prove|depict,
    could|may|might|would help to? identify|find|detect|show|reveal|confirm|see|determine,
    for confirmation|identification|diagnosis|visualization|demonstration of,
    can|would better? show|reveal|demonstrate|detect|find|identify|disclose|uncover|depict
"""

EXAMINE = "to further|better? evaluate|assess|characterize|examine"

SOUGHT = """
    look|looking|looked|search|searching|check|checking|hunt|hunting|screen|watch for,
    attention on|at followup for, in search of, seek, seeking,
    ensure|sure|certain|confirm|show that? there is|are|was no?, whether|if there is|are|was|were,
    see|determine if, ct|mri|ultrasound for any|a|an?
"""

# Being longer, these are read instead of the word of another table that they hold.
IDLE = """
    consistent|compatible|concordant|compared|comparison with, in keeping with, mass effect,
    air bronchogram, nipple shadow, body mass|habitus, no comparison,
    thoracic|chest|abdominal|peritoneal|nasal cavity, air fluid level, no prior|previous,
    prior|previous|remote|treated pneumonia|infection|tuberculosis, not available,
    prior|old|previous|remote|treated tuberculosis|tuberculous|fungal infection,
    prior|old|previous|remote|past infectious|inflammatory process|disease|change|insult,
    old|past|chronic infection, prior|old|previous|remote infection or inflammation,
    neck|axillary|paraspinal|hepatic|liver|splenic|skin mass|lesion,
    neck|shoulder|humeral|abdominal|breast|vertebral|sclerotic density|opacity,
    density|opacity|nodule|mass in|within|over the? left|right? neck|shoulder|abdomen|breast,
    density|opacity|nodule|mass in|within|over the? left|right? axilla|humerus,
    density|opacity|nodule|mass in|within|over the? soft tissue, no change exam,
    bowel|abdominal mass|air,
    has|have? nearly|almost|largely|partially|mostly|incompletely resolved|cleared,
    almost|nearly completely|entirely|totally|fully resolved|cleared,
    not completely? resolved|cleared, heart rate,
    near|nearly|almost complete? interval? resolution|clearing of?, heart disease,
    has|have cleared|resolved substantially|considerably|significantly|partially|mostly|largely,
    partial|incomplete|some|continued|further|ongoing|gradual interval? resolution|clearing of?,
    marked|significant|substantial|considerable interval? clearing of?,
    not seen|present|identified|visualized|noted|evident|demonstrated previously|before,
    not seen|present|identified|visualized|noted|evident on|in the? prior|previous|comparison,
    not definitely|clearly|well seen|present|appreciated|identified on|in the? prior|previous,
    not definitely|clearly|well? seen|present on|in the? earlier, not clearly seen previously,
    not definitely|clearly|well? seen|visualized|identified|appreciated on the? lateral|frontal,
    not previously seen|present|identified|visualized|noted|evident|described,
    respiratory|renal|hepatic|hardware|treatment failure, joint|knee|shoulder|hip|elbow effusion,
    difficult|hard to assess|evaluate|determine|appreciate|measure|see|gauge,
    edema of|in|within the? chest|abdominal|body wall, edema of|in|within the? soft tissue,
    edema of|in|within the? left|right? neck|arm|leg|extremity, chest|abdominal|body wall edema,
    bone|bony|osseous|skeletal|vertebral|rib|hepatic|liver|brain metastasis,
    bone|bony|osseous|skeletal|vertebral|rib|hepatic|liver metastatic disease|lesion|focus,
    metastatic disease|metastasis of|to|in the? bone|spine|rib|liver|brain,
    post pneumonia|infectious|infection|tuberculous|aspiration, non specific,
    accounting|allowing|adjusting for technical? factors?,
    without a|any? comparison|prior|previous|contrast, absence of prior|previous|comparison,
    left|right heart border|margin, heart border, dr, may of, not limited, costal cartilage,
    bone density|island|mineralization, no additional|further imaging|evaluation|views|followup,
    cardiac apex|border, aortic|mitral valve? annular|annulus? calcification|disease|stenosis,
    bone scan, lead|wire|hardware|catheter fracture, sternal|sternotomy wire fracture,
    fracture of the? lead|wire|hardware|catheter|sternal|sternotomy wire?,
    fractured|broken sternal|sternotomy? lead|wire|catheter, breast implant|prosthesis,
    breast mass|shadow|tissue, mediastinal fat,
    thyroid|pericardial|adrenal|renal|breast mass|nodule|lesion|enlargement|cancer|carcinoma,
    soft tissue edema|mass|density|nodule, laryngeal|subcutaneous edema,
    peripheral|extremity|leg|bone|marrow|mucosal|cerebral edema, lung cancer screening,
    port of entry, not well seen|visualized|evaluated|assessed|included,
    not optimally|fully|completely|adequately seen|visualized|evaluated|included|assessed,
    vertebral|tracheal|bronchial body? collapse, collapsed|collapsing vertebral body?|vertebra,
    collapse of the? vertebra|trachea, collapse of the? vertebral body,
    which|that was|were not seen|present|identified|visualized|noted|evident|there,
    has|have been pulled back|out, was|were pulled back, limit|limited evaluation of,
    hepatic|respiratory|ventilatory decompensation, iv line
"""
