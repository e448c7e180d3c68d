"""Words that assert or deny a finding, doubt it, or say nothing of it.

Phrases are in the notation of `PhraseTable`. After NegEx and ConText (Chapman et al., 2001;
Harkema et al., 2009): a trigger, its direction, and what ends its scope.
"""

from __future__ import annotations

from enum import IntEnum

from rrgclinical.rules import parts


class Cue(IntEnum):
    """Kind of an event in a sentence."""

    FINDING = 0
    SUBJECT = 1
    PREDICATE = 2
    SIDE = 3
    ZONE = 4
    SEVERITY = 5
    NEGATE = 6
    NEGATE_NEXT = 7
    NEGATED_BEFORE = 8
    DOUBT = 9
    DOUBTED_BEFORE = 10
    UNASSERTED = 11
    BREAK = 12
    RESET = 13
    CAUSE = 14
    ASSERT = 15
    COMMA = 16
    COLON = 17
    AND = 18
    OR = 19
    VERSUS = 20
    PREPOSITION = 21
    VERB = 22
    IDLE = 23
    NEGATE_EITHER = 24
    DOUBT_EITHER = 25
    FINITE = 26
    ADVICE = 27
    PURPOSE = 28
    SETTING = 29
    SIGN = 30
    DOUBTED_AT_END = 31
    END = 32
    WHICH = 33
    SUBORDINATE = 34
    REMOVED = 35
    TIP = 36
    DASH = 37
    HISTORY = 38
    OVERLOOKED = 39
    THERE = 40
    PRONOUN = 41
    LACK = 42
    AFFIRM = 43
    EXCEPT = 44
    GONE = 45
    AIM = 46
    EXAMINE = 47
    EARLIER = 48
    THAT_THERE = 49
    HEDGED = 50
    UNSURE = 51
    RULED_OUT = 52
    CHANCE = 53


# Two findings told apart by nothing: one before these words and one behind.
_INSEPARABLE = """
    cannot|not be? distinguished|differentiated|separated from?, is|are? indistinguishable from?,
    is|are difficult|hard|impossible to distinguish|differentiate|separate from?,
"""

CUES: dict[Cue, str] = {
    Cue.LACK: f"{parts.LACK}, {parts.ALONE}, {parts.CHANGE}",
    # Denials of a denial, and of more than a grade: what follows is there.
    Cue.AFFIRM: parts.AFFIRM,
    # A verb that can make a clause of its own after a comma, and ends a denial within the clause's
    # subject. The first of the table, so that it is read before the doubt of the same words.
    Cue.FINITE: """
        is, are, was, were, has, have, remain, appear, may, might, could, suggest, represent,
        indicate, reflect, may represent|reflect|indicate, is|are very|most|more? likely,
        likely|probably|possibly represent|reflect|indicate
    """,
    # Deny what follows, until the scope ends.
    Cue.NEGATE: """
        no, no sign of, deny, denied, denying, nor, neither, rather than, nothing,
        clearance|disappearance of, complete? interval? resolution|clearing of, never, none, lack,
        interval? removal of, no definite|convincing|radiographic? evidence of, exclude any,
        instead of, no longer any?, not meet the? appearance|criteria of|for,
        not have the? appearance|criteria of|for, not consistent|compatible with,
        not in keeping with, not suggestive|indicative|diagnostic|characteristic|typical,
        not suspicious|concerning|worrisome, not look like,
        not surely? appear|seem consistent|compatible|suggestive?,
        not surely? appear|seem to be|represent|have|show|contain|reflect|indicate|suggest,
        is|are? not felt|thought|believed|considered|likely|suspected to be|represent|reflect,
        is|are? unlikely to be|represent|reflect|indicate, argue|arguing|argued|evidence against,
        against a? diagnosis of?, no abnormality, no indication of|for?,
        not to? be? mistaken|misinterpreted|misread for|as, no suspicion for|of, nowhere
    """
    + f", {parts.LACK}, {parts.NOT_SEE}, {parts.RULED_OUT_BY}",
    # Deny a finding or predicate a few words ahead.
    Cue.NEGATE_NEXT: "not, by no means, in no way, hardly, scarcely, far from, anything but",
    # Deny what follows where a finding follows in the segment, what precedes where none does.
    Cue.NEGATE_EITHER: """
        now? resolved, now? cleared, absent, unlikely, absent|negative|negatives|excluded :,
        not seen|identified|present|found|visualized|detected|evident :
    """
    + f", {parts.LOW_CHANCE}",
    # The same, a doubt where the word before is unknown.
    Cue.RULED_OUT: f"has|have? {parts.ADVERB} {parts.EXCLUDED}",
    # Doubt in the same two directions.
    Cue.DOUBT_EITHER: f"{parts.NOT_UNLIKELY}, {parts.HARD_TO_EXCLUDE}"
    + """,
        possible, probable, suspected, questionable, questioned, equivocal, doubtful, conceivable,
        poss, prob, susp, if present|any|real, not excluded :, not ruled out :
    """,
    # Doubt what follows, or what precedes where they stand alone behind a comma.
    Cue.DOUBT: _INSEPARABLE
    + f"{parts.NOT_EXCLUDE}, {parts.MUST_EXCLUDE},"
    + """
        query, possibly, probably, conceivably, potentially, presumably, perhaps, maybe, apparently,
        questionably, supposedly, tentatively, not improbably|impossibly, not out of the question,
        may, might, could, question, may represent|reflect|indicate, by no means rule|exclude,
        question of, suspect, suspicious for|of?, concern for|of, concerning for?, worrisome for,
        suggest, suggesting, suggested, suggestion of, suggestive of, potential, consider,
        considered, favor, favoring, not excluded, apparent,
        raise|raises|raising the? question|possibility|suspicion|concern of|for,
        neither confirm|prove|establish nor exclude|rule, neither exclude nor confirm|prove,
        without|not excluding, without ruling, cannot be certain,
        is? unclear|uncertain|unknown|doubtful whether|if there? is|are?,
        cannot|not|unable to? say|tell|determine|decide|know whether|if there? is|are?,
        is? not clear|certain|sure|known whether|if there? is|are?, indeterminate for, to suggest,
        consideration include,
        is|are? thought|felt|believed|favored to represent|be|reflect|indicate,
        presumed to represent|be|reflect, more|less likely than, is|are? favored over, doubt,
        differential diagnosis? includes|considerations?, would be, versus less likely,
        can be seen with|in, may|might|could be seen with, either,
        cannot|unable|impossible|difficult|hard to? distinguish|differentiate|separate,
        it is difficult|hard|impossible to distinguish|differentiate|separate,
        can not distinguish|differentiate|separate, with or without,
        not incompatible|inconsistent with, whether this|these|it is|are|represent|reflect,
        likely|probably|possibly represent|reflect|indicate
    """,
    # Doubt what follows, or deny it where the chance is low.
    Cue.CHANCE: f"{parts.CHANCE} of, suspicion for?, index of suspicion of|for?",
    # Doubt what precedes where it stands alone behind a comma, nothing elsewhere.
    Cue.HEDGED: "uncertain, indeterminate, unclear, in doubt|question, tentative",
    # Doubt what precedes, unless its cause or age is in doubt.
    Cue.UNSURE: """
        is|are|remain uncertain|unclear|equivocal|doubtful|debatable|inconclusive,
        is|are|remain in doubt|question, is|are|remain open to question|debate,
        is|are not certain|sure|conclusive, is|are|remain a question|matter
    """,
    # Deny what precedes.
    Cue.NEGATED_BEFORE: """
        is|are a? nipple shadow, has|have resolved|cleared, has|have been resolved,
        has|have completely|since|now|essentially|fully|subsequently resolved|cleared,
        complete? interval? resolution, none,
        has|have not developed|occurred|recurred|accumulated|reaccumulated, is|are absent,
        is|are unlikely, is|are resolved,
        is|are? felt|thought|believed|considered|deemed unlikely|improbable,
        is|are? felt|thought|believed|considered|deemed to be unlikely|improbable,
        is|are? not felt|thought|believed|considered to be present|there, is|are less|not likely,
        has|have disappeared, is|are likely|probably|essentially resolved|cleared, is|are gone,
        not suspected, not suggested, resolved since, is|are felt|thought|considered less likely,
        is|are felt|thought to be less likely|unlikely, is|are very|highly unlikely, -free,
        has|have been resected|evacuated|drained, has|have regressed|vanished
    """
    + f", {parts.NOT_SEEN}, {parts.IS_EXCLUDED}",
    # Deny the finding that a verb puts behind them ("gone is the effusion").
    Cue.GONE: """
        gone, vanished, disappeared, missing, undetected, unseen, excluded, not there,
        not to be seen|found, not anymore, not any more seen|visible|present
    """,
    # Deny the devices that precede.
    Cue.REMOVED: """
        has|have been removed|pulled|discontinued, was|were removed|pulled|discontinued, removal,
        removed, taken out
    """,
    # "The tip is not seen" denies no device.
    Cue.TIP: "tip, side port, distal end|aspect|portion",
    # Doubt what precedes.
    Cue.DOUBTED_BEFORE: _INSEPARABLE
    + f"{parts.UNSETTLED}, {parts.NOT_EXCLUDED}, {parts.TO_BE_EXCLUDED}"
    + """,
        is|are favored|preferred, more|less likely than, is|are? favored over,
        may|might|could|can account|explain|cause|contribute|contributing for|to?,
        may|might|could|can be responsible|contributing|contributory|accounting for|to?,
        is|are possible, is|are suspected, is|are questioned, is|are questionable, is|are probable,
        is|are? likely|probably|possibly|presumably present|there,
        is|are? felt|thought|believed|considered|suspected to be present|there,
        may|might|could|can|would have this|a|the similar|same? appearance,
        may|might|could|can look like this, may|might|could|can look|appear similar|identical,
        is|are suggested, is|are|remain|be of concern, remain possible|suspected|probable,
        may|might|could be present|seen|considered, is|are considered, should|must be considered,
        is|are|remain in the differential, would be difficult,
        is|are|remain the? most likely|probable diagnosis|consideration|etiology|explanation,
        is|are|remain the? leading|primary|main|top diagnosis|consideration|concern|possibility,
        is|are|remain a|another|also? strong|distinct|real? possibility|consideration|concern,
        would be of|a|another|the? possibility|consideration|concern
    """,
    # Doubt what precedes where nothing follows ("effusion is likely."), what follows elsewhere.
    Cue.DOUBTED_AT_END: """
        likely, is|are very|most|more|felt|thought|considered? likely, less likely, favored,
        presumed
    """,
    # Doubt what follows, and the diagnoses that precede.
    Cue.SETTING: "in the|an? appropriate|correct|right|proper clinical setting|context|scenario",
    # An examination is asked for; "to exclude pneumonia" behind it is its purpose.
    Cue.ADVICE: parts.ADVICE,
    # The purpose of an examination where one is asked for, a doubt elsewhere.
    Cue.PURPOSE: parts.PURPOSE,
    # The purpose of an examination where one is asked for, nothing elsewhere.
    Cue.AIM: parts.AIM,
    # The same wherever it stands, unless what is examined is said to be there: "the nodule".
    Cue.EXAMINE: parts.EXAMINE,
    # Nothing is asserted of what follows: history, a question, a hypothesis.
    Cue.UNASSERTED: parts.SOUGHT
    + """,
        history of, hx of, h o, status post treatment, evaluate for, evaluation for|of, assess for,
        indication, clinical question is|was|of|:, clinical concern for, if there is|are,
        if clinical, screening for, rule out history, risk of, risk for, treated for,
        known history of, workup for|of, symptom of, clinical suspicion for|of,
        sensitive|insensitive|sensitivity|specific in|for|to|than,
        better|best|superior|preferred|suited for, modality|study|test of choice for, detection of,
        detect, detecting, to detect, in|for evaluating|assessing|characterizing, if, in case of,
        whether, document|ensure|confirm|assure|show|until|to resolution|clearing|clearance of?,
        to document|ensure|confirm|assure|show resolution|clearing|clearance of?,
        follow to? resolution of?, documenting|ensuring resolution|clearing|clearance of?,
        please note, may|could|can|might mask|simulate|mimic, mimic, mimicking, simulate,
        simulating, r/o, h / o, resection|excision|ablation of,
        surgery|resection|lobectomy|pneumonectomy|radiation|therapy|chemotherapy|treatment for,
        if concern for, treatment of|for, if clinically|there, sequela|sequelae of prior|old?,
        surveillance for, monitoring for, assessment for|of, reason for,
        correlate|correlation clinically? for|with, clinical correlation for, may|could obscure,
        recommended|advised|suggested|obtained|performed to exclude|rule, clinically correlate for,
        evaluated|assessed|nondiagnostic|inadequate|suboptimal|limited for,
        if this|these|it is|are|represent,
        not well|adequately|optimally|fully evaluated|assessed|seen for
    """,
    # The same to the end of the statement, whatever comes between: the patient and the question.
    Cue.HISTORY: """
        indication|history|hx|information :, reason for exam|examination|study :,
        year|yr|y old|o man|woman|male|female|patient|boy|girl|m|f|with|who|presenting,
        yo man|woman|male|female|patient|m|f|with|who
    """,
    # Nothing is asserted of what precedes ("fractures may be occult").
    Cue.OVERLOOKED: """
        may|might|could|can be missed|occult|overlooked|inapparent|undetected|invisible|hidden,
        may|might not be seen|visible|evident|apparent|demonstrated|detected|visualized,
        may|might|could|can be radiographically|easily occult|missed|overlooked,
        should|could|can|may|might|must|would be sought|searched|looked|screened|checked for?
    """,
    # The same where nothing more is said of it, for it may be gone since.
    Cue.EARLIER: """
        was|were only|just? on an|the|a? earlier|prior|previous|preceding|old|older|outside,
        was|were seen|noted|present|visible|there on an|the|a? earlier|prior|previous,
        was|were identified|described on an|the|a? earlier|prior|previous
    """,
    # Nothing is asserted where it opens the sentence ("follow up for infection").
    Cue.SIGN: "follow up for, followup for, should",
    # A new statement begins.
    Cue.BREAK: """
        but, however, although, though, whereas, while, yet, despite,
        there is|are|has|have|was|were,
    """
    + parts.EXCEPT,
    Cue.EXCEPT: parts.EXCEPT,
    # The same, unless a denial or doubt right before means it ("no sign that there is").
    Cue.THAT_THERE: "that there is|are|has|have|was|were|may|might|could be?",
    # What is seen, not what the patient is said to have.
    Cue.THERE: """
        there is|are|has|have|was|were, year|yr|y old|o man|woman|male|female|patient has|have
    """,
    # Denial and doubt end, and what follows may still speak of what came before.
    Cue.RESET: "with, otherwise, in addition, additionally, associated with, given, following",
    # The same, and what ends a finding behind it says nothing of the statement before.
    Cue.SUBORDINATE: """
        after, since, where, because, once, now that, as the, even as, status post, s / p
    """,
    # The same, speaking of what came before its comma ("effusion, which has resolved").
    Cue.WHICH: "which",
    # Denial ends, doubt goes on: "may be secondary to".
    Cue.CAUSE: """
        secondary to, due to, because of, related to, caused by, resulting from, this|these is|are,
        attributed|attributable to,
        with superimposed|coexisting|concomitant|concurrent|underlying|postobstructive,
        limited|degraded|hampered|compromised by the?
    """,
    # After a comma or "and", these begin a statement of its own.
    Cue.ASSERT: """
        stable, unchanged, persistent, persist, chronic, again, redemonstrated, worsening,
        improving, improved, increasing, decreasing, interval, remains, old, healed, slight,
        redemonstration of, postsurgical, subtle, low, status, increased, decreased,
        no? change in|of|from,
        slightly|mildly|minimally|moderately|significantly|markedly increased|decreased|improved,
        slightly|mildly|minimally|moderately|significantly|markedly larger|smaller|changed|worse,
        slightly|mildly|minimally|moderately|significantly|markedly worsened|decrease|increase,
        slight|mild|minimal|moderate|significant|marked interval? increase|decrease|improvement,
        slight|mild|minimal|moderate|significant|marked interval? worsening|change,
        no significant|interval|substantial|appreciable change,
        no significant interval|appreciable? change, not significantly|substantially? changed,
        no change, without significant? interval? change,
        no interval? significant? worsening|improvement|increase|decrease in|of, no relevant change,
        no not? only, not only, no further change|increase|decrease,
        no further? interval? progression|regression|resolution|worsening of|in,
        no evidence of|for interval? progression|worsening|improvement|resolution|clearing of|in,
        no evidence of|for interval? change|increase|decrease|growth|enlargement of|in,
        been no resolution|change of|in, at the? most|best|worst|least, unchanged in, resolving,
        slightly, tortuous, calcified, prominent
    """,
    # Speaks of the finding before it ("no large effusion, but a small one").
    Cue.PRONOUN: "one, ones, those",
    Cue.AND: "and, as well as, plus, along with",
    Cue.OR: "or, and or",
    Cue.VERSUS: "versus, vs",
    Cue.PREPOSITION: """
        in, at, of, within, involving, along, overlying, over, near, on, projecting over,
        throughout, from, to, adjacent to, above, below, for, affecting, occupying, into, underlying
    """,
    Cue.VERB: """
        is, are, was, were, appear, has, have, remain, demonstrate, show, seen, noted, identified,
        reveal, contain, be, been, present, visualized, look, measure, evident, appreciated
    """,
    # Phrases that hold a word of another table and mean nothing here.
    Cue.IDLE: parts.IDLE,
}

PUNCTUATION: dict[str, tuple[Cue, ...]] = {
    ",": (Cue.COMMA,),
    "(": (Cue.COMMA,),
    ")": (Cue.COMMA,),
    ";": (Cue.BREAK,),
    ":": (Cue.COLON,),
    "/": (Cue.AND,),
    **dict.fromkeys(("-", "--", "\u2013", "\u2014", "|"), (Cue.DASH,)),
    **dict.fromkeys(("*", "\u2022"), (Cue.BREAK,)),
    "?": (Cue.DOUBT, Cue.DOUBTED_BEFORE),
}

# Words that locate or grade a finding.
SIDES = ("", "left", "right", "bilateral")
ZONES = ("", "upper", "middle", "lower")
SEVERITIES = ("", "small", "moderate", "large")

ATTRIBUTES: dict[Cue, dict[str, str]] = {
    Cue.SIDE: {
        "left": "left, left sided, lt, lll, lul",
        "right": "right, right sided, rt, rll, rul, rml",
        "bilateral": """
            bilateral, bilaterally, both, bibasilar, bibasal, biapical, left and right,
            right and left, right greater than left, left greater than right,
            bilateral left|right greater than left|right
        """,
    },
    Cue.ZONE: {
        "upper": """
            upper, upper lobe|lung|zone, lung? apex|apices, apical, superior, upper lung zone|field,
            suprahilar, rul, lul
        """,
        "middle": """
            middle, middle lobe|lung, midlung, mid lung? zone?, lingula, lingular, perihilar,
            midzone, hilar, central, parahilar, rml
        """,
        "lower": """
            lower, lower lobe|lung, base, basilar, basal, retrocardiac, inferior, infrahilar,
            lung base, costophrenic angle|sulcus, lower lung zone|field, bibasilar, bibasal,
            posterior basal, subpulmonic, rll, lll
        """,
    },
    Cue.SEVERITY: {
        "small": """
            small, mild, minimal, minimally, mildly, tiny, trace, minor, mild to moderate,
            small to moderate, slight, slightly, subtle, minute, minimal amount of, small amount of
        """,
        "moderate": "moderate, moderately, moderate sized, medium",
        "large": """
            large, severe, severely, marked, markedly, massive, extensive, significant,
            significantly, moderate to large|severe, huge, gross
        """,
    },
}
