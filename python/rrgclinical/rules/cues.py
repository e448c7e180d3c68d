"""Words that assert or deny a finding, doubt it, or say nothing of it.

Phrases are in the notation of `PhraseTable`. After NegEx and ConText (Chapman et al., 2001;
Harkema et al., 2009): a trigger, its direction, and what ends its scope.
"""

from __future__ import annotations

from enum import IntEnum

from rrgclinical.rules import parts

Cue = IntEnum(
    "Cue",
    """
    FINDING SUBJECT PREDICATE SIDE ZONE SEVERITY NEGATE NEGATE_NEXT NEGATED_BEFORE DOUBT
    DOUBTED_BEFORE UNASSERTED BREAK RESET CAUSE ASSERT COMMA COLON AND OR VERSUS PREPOSITION VERB
    IDLE NEGATE_EITHER DOUBT_EITHER FINITE ADVICE PURPOSE SETTING SIGN DOUBTED_AT_END END WHICH
    SUBORDINATE REMOVED TIP DASH HISTORY OVERLOOKED THERE PRONOUN LACK AFFIRM EXCEPT GONE AIM
    EXAMINE EARLIER THAT_THERE HEDGED UNSURE RULED_OUT CHANCE SUSPICIOUS
    """,
    start=0,
)
"""Kind of an event in a sentence."""

# Two findings told apart by nothing: one before these words and one behind.
_INSEPARABLE = """
    cannot|not be? distinguished from?, is? indistinguishable from?, is difficult|impossible to
    distinguish from?,
"""

CUES: dict[Cue, str] = {
    Cue.LACK: f"{parts.LACK}, {parts.ALONE}",
    # Denials of a denial, and of more than a grade: what follows is there.
    Cue.AFFIRM: parts.AFFIRM,
    # A verb that can make a clause of its own after a comma, and ends a denial within the clause's
    # subject. The first of the table, so that it is read before the doubt of the same words.
    Cue.FINITE: """
        is, was, has, remain, appear, may represent?, could, suggest,
        likely|probably|possibly? represent, is very|most|more? likely
    """,
    # Deny what follows, until the scope ends.
    Cue.NEGATE: """
        no abnormality?, no sign of, deny, denied, denying, nor, neither, rather than, nothing,
        clearance|disappearance|instead of, complete? interval? resolution|clearing of, never, none,
        lack, interval? removal of, no definite|convincing|radiographic? evidence of, exclude any,
        no longer any?, not meet|has the? appearance|criteria of|for, not consistent with,
        not in keeping with, not suggestive|indicative|diagnostic|characteristic|typical|suspicious,
        not look like, not surely? appear consistent|suggestive?,
        not surely? appear to be|represent|has|show|contain|suggest,
        is? not thought|considered|likely|suspected to be|represent, is? unlikely to be|represent,
        argue|arguing|argued|evidence against, against a? diagnosis of?, not any,
        no indication of|for?, not to? be? mistaken|misinterpreted|misread for|as,
        no suspicion for|of, nowhere
    """
    + f", {parts.LACK}, {parts.NOT_SEE}, {parts.RULED_OUT_BY}",
    # Deny a finding or predicate a few words ahead.
    Cue.NEGATE_NEXT: "not, by no means, in no way, hardly, scarcely, far from, anything but",
    # Deny what follows where a finding follows in the segment, what precedes where none does.
    Cue.NEGATE_EITHER: """
        now? resolved, absent, unlikely, is? absent|negative|excluded :,
        not seen|present|found|evident :
    """
    + f", {parts.LOW_CHANCE}",
    # The same, a doubt where the word before is unknown.
    Cue.RULED_OUT: f"has|have? {parts.ADVERB} {parts.EXCLUDED}",
    # Doubt in the same two directions.
    Cue.DOUBT_EITHER: f"{parts.NOT_UNLIKELY}, {parts.HARD_TO_EXCLUDE}"
    + """,
        possible, probable, suspected, questionable, questioned, queried, equivocal, doubtful,
        conceivable, poss, prob, susp, if present|any|real, not excluded :, not ruled out :
    """,
    # Doubt what follows, or what precedes where they stand alone behind a comma.
    Cue.DOUBT: _INSEPARABLE
    + f"{parts.NOT_EXCLUDE}, {parts.MUST_EXCLUDE},"
    + """
        query, potentially, apparently, questionably, supposedly, tentatively,
        not improbably|impossibly|excluded, not out of the question, may represent?, can represent,
        could, question of?, hint of, presumptive, by no means rule|exclude, suspect,
        suspicious of|for, concern for|of, to? suggest, suggesting, suggested,
        suggestion|suggestive of, potential, consider, considered, favor, favoring, apparent,
        raise|raising the? question|possibility|suspicion|concern of|for, indeterminate for,
        neither confirm|prove|establish nor exclude|rule, neither exclude nor confirm|prove,
        without|not excluding|ruling, consideration include, doubt, cannot be certain,
        cannot|unable to? confirm|prove|establish or|nor exclude|rule,
        may|could or may|could not be?, cannot|not be? certain|sure|confident that there? is? no,
        cannot|not|unable to? say|tell|determine|decide|know whether|if there? is?,
        is? not? unclear|uncertain|unknown|doubtful|clear|certain|sure|known whether|if there? is?,
        is? thought|favored|presumed to represent|be, more|less likely than, is? favored over,
        differential diagnosis? includes|considerations|:, ddx includes|:?, would be,
        versus less likely, either, can|may|could be seen with|in,
        cannot|unable|impossible|difficult to? distinguish,
        it is difficult|impossible to distinguish, can not distinguish, with or without,
        not incompatible|inconsistent with, whether this|these|it is|represent,
        likely|probably|possibly represent
    """,
    # Doubt what follows; of a list that is denied it is a word as any other.
    Cue.SUSPICIOUS: "suspicious",
    # Doubt what follows, or deny it where the chance is low.
    Cue.CHANCE: f"{parts.CHANCE} of|for, suspicion for?, index of suspicion of|for?",
    # Doubt what precedes where it stands alone behind a comma, nothing elsewhere.
    Cue.HEDGED: "uncertain, indeterminate, unclear, in doubt|question, tentative",
    # Doubt what precedes, unless its cause or age is in doubt.
    Cue.UNSURE: """
        is|remain uncertain|unclear|equivocal|doubtful|debatable|inconclusive,
        is|remain in doubt|question, is|remain open to question|debate,
        is not certain|sure|conclusive, is|remain a question|matter
    """,
    # Deny what precedes.
    Cue.NEGATED_BEFORE: """
        is a? nipple shadow, has been|since|now|essentially|fully|subsequently? resolved,
        complete? interval? resolution, none,
        did|has not develop|occur|recur|developed|occurred|recurred|accumulated|reaccumulated,
        is absent|resolved|gone|lacking, is|has wholly? gone, is very? unlikely|improbable,
        is? thought|considered to? be? very? unlikely|improbable,
        is? not thought|considered to be present|there, is thought|considered? less|not likely,
        is likely|probably|essentially resolved, not suspected|suggested, resolved since,
        is thought to be less likely, -free, has been resected|evacuated|drained,
        has regressed|vanished, neither seen|suspected nor|or seen|suspected
    """
    + f", {parts.NOT_SEEN}, {parts.IS_EXCLUDED}",
    # Deny the finding that a verb puts behind them ("gone is the effusion").
    Cue.GONE: """
        gone, vanished, missing, undetected, unseen, excluded, not there|anymore,
        not to be seen|found, not any more seen|present
    """,
    # Deny the devices that precede.
    Cue.REMOVED: """
        has been removed|pulled|discontinued, was removed|pulled|discontinued, removal, removed,
        taken out
    """,
    # "The tip is not seen" denies no device.
    Cue.TIP: "tip, side port, distal end|aspect|portion",
    # Doubt what precedes.
    Cue.DOUBTED_BEFORE: _INSEPARABLE
    + f"{parts.UNSETTLED}, {parts.NOT_EXCLUDED}, {parts.TO_BE_EXCLUDED}"
    + """,
        is favored|preferred|possible|suspected|questioned|questionable|probable|suggested,
        more|less likely than, is? favored over, until|unless proven otherwise, may|could has
        developed|occurred|appeared, may|could|can account|explain|cause|contribute|contributing
        for|to?, may|could|can be responsible|contributing|contributory|accounting for|to?, is?
        likely|probably|possibly|presumably present|there, is? thought|considered|suspected to be
        present|there, may|could|can|would has this|a|the similar|same? appearance, may|could|can
        look like this, may|could|can look|appear similar|identical, is|remain|be of concern, remain
        possible|suspected|probable, may|could be present|seen|considered, is considered,
        should|must be considered, would be difficult, is|was|remain in the differential, may|could
        or may|could not be present|seen|there|real, is|remain the? most?
        likely|probable|leading|primary|main|top
        diagnosis|consideration|etiology|explanation|concern|possibility, is|was|remain|would be?
        of|a|another|the|also? strong|distinct|real? possibility|consideration|concern
    """,
    # Doubt what precedes where nothing follows ("effusion is likely."), what follows elsewhere.
    Cue.DOUBTED_AT_END: """
        less? likely, is very|most|more|thought|considered? likely, favored, presumed, possibly,
        probably, conceivably, presumably, perhaps, maybe
    """,
    # Doubt what follows, and the diagnoses that precede.
    Cue.SETTING: "in the|an? appropriate|correct|right|proper clinical setting|context|scenario",
    # An examination is asked for; "to exclude pneumonia" behind it is its purpose.
    Cue.ADVICE: """
        recommend, recommended, recommendation, recommending, advise, advisable, helpful, useful,
        beneficial, repeat, may|would|could help, ct, mri, ultrasound, fluoroscopy, imaging,
        followup, follow up,
        scan|evaluation|examination|exam|view|film|ct|mri|ultrasound|imaging is suggested,
        followup|radiograph|study|workup|correlation|comparison|attention is suggested,
        biopsy|bronchoscopy is suggested,
        follow up is suggested,
        expiratory|decubitus|lateral|oblique|lordotic|additional|dedicated view|film|radiograph,
        can|could|may|should|would be performed|obtained|done|used|considered|ordered,
        can|could|may|should|would be repeated|taken|acquired|arranged|undertaken,
        obtain, is warranted, tomography, sonography, scan
    """,
    # The purpose of an examination where one is asked for, a doubt elsewhere.
    Cue.PURPOSE: """
        in|for excluding, to? exclude, to? rule out, for? exclusion of,
        may|could better? show|see|detect|find|disclose|uncover
    """,
    # The purpose of an examination where one is asked for, nothing elsewhere.
    Cue.AIM: """
        to find|see|confirm|verify|establish|determine|document|show|diagnose|uncover|clarify|prove,
        could|may|would help to? find|detect|show|confirm|see|determine,
        for confirmation|identification|diagnosis|visualization|demonstration of,
        can|would better? show|see|detect|find|disclose|uncover
    """,
    # The same wherever it stands, unless what is examined is said to be there: "the nodule".
    Cue.EXAMINE: "to further|better? evaluate|examine",
    # Nothing is asserted of what follows: history, a question, a hypothesis.
    Cue.UNASSERTED: """
        look|looking|looked|search|searching|check|checking|hunt|hunting|screen|watch for,
        attention on|at followup for, in search of, seek, seeking,
        ensure|sure|certain|confirm|show that? there is|was no?, ensure that? no,
        whether|if there is|was, see|determine if, ct|mri|ultrasound for any|a?,
        history|hx|risk|symptom|detection|resection|excision|ablation of, h /? o,
        status post treatment,
        evaluate|screening|risk|treated|better|best|superior|preferred|suited|surveillance for,
        evaluation|workup|assessment for|of, indication, clinical question is|was|of|:,
        clinical|if concern for, if there is, if clinical|clinically|there?, rule out history,
        known history of, clinical suspicion for|of,
        sensitive|insensitive|sensitivity|specific in|for|to|than,
        modality|study|test of choice for, to? detect, detecting,
        in|for evaluating|assessing|characterizing, in case of, whether,
        to? document|ensure|confirm|assure|show resolution|clearing|clearance of?,
        until|to|documenting|ensuring resolution|clearing|clearance of?,
        follow to? resolution of?, please note, may|could|can mask|mimic, mimic, mimicking,
        simulating, r/o,
        surgery|resection|lobectomy|pneumonectomy|radiation|therapy|chemotherapy|monitoring for,
        treatment of|for, sequela of prior|old?,
        reason|evaluated|nondiagnostic|inadequate|suboptimal|limited for,
        correlate|correlation clinically? for|with, clinical correlation for, may|could obscure,
        recommended|suggested|obtained|performed to exclude|rule, clinically correlate for,
        if this|these|it is|represent, not well|adequately|optimally|fully evaluated|seen for
    """,
    # The same to the end of the statement, whatever comes between: the patient and the question.
    Cue.HISTORY: """
        indication|history|hx|information :, reason for exam|examination|study :,
        year|yr|y old|o man|woman|male|female|patient|boy|girl|m|f|with|who|presenting,
        yo man|woman|male|female|patient|m|f|with|who
    """,
    # Nothing is asserted of what precedes ("fractures may be occult").
    Cue.OVERLOOKED: """
        cannot|not be? surely? evaluated,
        may|could|can be radiographically|easily? missed|occult|overlooked|inapparent,
        may|could|can be radiographically|easily? undetected|invisible|hidden,
        may not be seen|evident|apparent|demonstrated,
        should|could|can|may|must|would be sought|searched|looked|screened|checked for?
    """,
    # The same where nothing more is said of it, for it may be gone since.
    Cue.EARLIER: """
        was only|just? on a|the? earlier|prior|old|older|outside,
        was present|there|seen|described on a|the? earlier|prior
    """,
    # Nothing is asserted where it opens the sentence ("follow up for infection").
    Cue.SIGN: "follow up for, followup for, should",
    # A new statement begins.
    Cue.BREAK: """
        but, however, although, though, whereas, while, yet, despite, there is|has|was,
    """
    + parts.EXCEPT,
    Cue.EXCEPT: parts.EXCEPT,
    # The same, unless a denial or doubt right before means it ("no sign that there is").
    Cue.THAT_THERE: "that there is|are|has|have|was|were|may|might|could be?",
    # What is seen, not what the patient is said to have.
    Cue.THERE: """
        there is|has|was, year|yr|y old|o man|woman|male|female|patient has
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
        secondary|due|related|attributed|attributable to, because of, caused by, resulting from,
        to explain, to account for, this|these is,
        with superimposed|coexisting|concomitant|concurrent|underlying|postobstructive,
        limited|degraded|hampered|compromised by the?
    """,
    # After a comma or "and", these begin a statement of its own.
    Cue.ASSERT: """
        stable, unchanged in?, persistent, persist, chronic, again, redemonstrated, worsening,
        improving, improved, increasing, decreasing, interval, remains, old, healed, slight,
        redemonstration of, postsurgical, subtle, low, status, increased, decreased,
        no? change in|of|from,
        slightly|mildly|minimally|moderately|significantly|markedly increased|decreased|improved,
        slightly|mildly|minimally|moderately|significantly|markedly larger|smaller|changed|worse,
        slightly|mildly|minimally|moderately|significantly|markedly worsened|decrease|increase,
        slight|mild|minimal|moderate|significant|marked interval? increase|decrease|improvement,
        slight|mild|minimal|moderate|significant|marked interval? worsening|change,
        no interval|substantial|seen|relevant|new|real|obvious? change,
        no significant interval|seen? change, not significantly|substantially? changed,
        without significant? interval? change,
        no interval? significant? worsening|improvement|increase|decrease in|of, no not? only,
        not only, no further change|increase|decrease,
        no further? interval? progression|regression|resolution|worsening of|in,
        no evidence of|for interval? progression|worsening|improvement|resolution|clearing of|in,
        no evidence of|for interval? change|increase|decrease|growth|enlargement of|in,
        been no resolution|change of|in, at the? most|best|worst|least,
        no worse|better|larger|smaller, resolving, slightly, tortuous, calcified, prominent
    """,
    # Speaks of the finding before it ("no large effusion, but a small one").
    Cue.PRONOUN: "one, ones, those",
    Cue.AND: "and, as well as, plus, along with",
    Cue.OR: "or, and or, nor",
    Cue.VERSUS: "versus, vs",
    Cue.PREPOSITION: """
        in, at, of, involving, along, overlying, projecting? over, near, on, throughout, from,
        adjacent? to, above, below, for, affecting, occupying, into, underlying
    """,
    Cue.VERB: """
        is, was, appear, has, remain, show, seen, contain, be, been, present, look, measure, evident
    """,
    # Phrases that mean nothing; being longer, they are read instead of a word that they hold.
    Cue.IDLE: """
        the? following :, consistent|concordant|compared|comparison with, in keeping with,
        indication of, mass effect, air bronchogram, nipple shadow, body mass|habitus,
        no comparison|prior, no change exam, not available|limited,
        thoracic|chest|abdominal|peritoneal|nasal cavity, air fluid level,
        heart rate|disease|border, prior|remote|treated pneumonia|tuberculosis,
        old|past|chronic|prior|remote|treated infection,
        prior|old|remote|treated tuberculosis|tuberculous|fungal infection,
        prior|old|remote infection or inflammation,
        prior|old|remote|past infectious|inflammatory process|disease|change|insult,
        post pneumonia|infectious|infection|tuberculous|aspiration,
        neck|axillary|paraspinal|hepatic|liver|splenic|skin mass|lesion, bowel|abdominal mass|air,
        neck|shoulder|humeral|abdominal|breast|vertebral|sclerotic density|opacity,
        density|opacity|nodule|mass in|over the? left|right? neck|shoulder|abdomen|breast|axilla,
        density|opacity|nodule|mass in|over the? left|right? humerus|soft tissue?,
        has? nearly|mostly|partially|incompletely|not fully? resolved, dr, may of,
        has resolved substantially|considerably|significantly|partially|mostly, costal cartilage,
        near|nearly|partial|incomplete|some complete? interval? resolution|clearing of?,
        continued|further|ongoing|gradual complete? interval? resolution|clearing of?,
        marked|significant|substantial interval? clearing of?,
        not clearly|well? seen|present|evident|demonstrated previously|before,
        not clearly|well? seen|present|evident on|in the? prior|comparison|earlier,
        not clearly|well? seen on the? lateral|frontal, previously not seen|present,
        not previously seen|present|evident|described,
        which|that was not seen|present|evident|there,
        not well|optimally|completely|adequately seen|evaluated|included,
        respiratory|renal|hepatic|hardware|treatment failure,
        joint|knee|shoulder|hip|elbow effusion,
        difficult to evaluate|determine|appreciate|measure|see|gauge,
        edema of|in the? chest|abdominal|body|soft wall|tissue,
        edema of|in the? left|right? neck|arm|leg|extremity, chest|abdominal|body wall edema,
        bone|bony|osseous|skeletal|vertebral|rib|hepatic|liver|brain metastasis,
        bone|bony|osseous|skeletal|vertebral|rib|hepatic|liver metastatic disease|lesion|focus,
        metastatic disease|metastasis of|to|in the? bone|spine|rib|liver|brain, non specific,
        accounting|allowing|adjusting for technical? factors?, port of entry,
        without|absence of? a|any? comparison|prior|contrast, left|right heart border,
        bone density|island|mineralization|scan, cardiac apex|border, mediastinal fat,
        no additional|further imaging|evaluation|views|followup,
        aortic|mitral valve? annular|annulus? calcification|disease|stenosis,
        lead|wire|hardware|catheter|sternal|sternotomy wire? fracture,
        fracture of the? lead|wire|hardware|catheter|sternal|sternotomy wire?,
        fractured|broken sternal|sternotomy? lead|wire|catheter, breast shadow|tissue,
        thyroid|pericardial|adrenal|renal|breast mass|nodule|lesion|enlargement|cancer|carcinoma,
        soft tissue edema|mass|density|nodule, has|was been? pulled back|out,
        laryngeal|subcutaneous|peripheral|extremity|leg|bone|marrow|mucosal|cerebral edema,
        lung cancer screening, iv line, limit|limited evaluation of, breast implant|prosthesis,
        vertebral|tracheal|bronchial body? collapse, collapsed|collapsing vertebral body?|vertebra,
        collapse of the? vertebra|trachea|vertebral body?,
        hepatic|respiratory|ventilatory decompensation
    """,
}

PUNCTUATION: dict[str, tuple[Cue, ...]] = {
    **dict.fromkeys(",()", (Cue.COMMA,)),
    **dict.fromkeys(";*\u2022", (Cue.BREAK,)),
    ":": (Cue.COLON,),
    "/": (Cue.AND,),
    **dict.fromkeys(("-", "--", "\u2013", "\u2014", "|"), (Cue.DASH,)),
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
        bilateral, bilaterally, both, bibasilar, bibasal, biapical, left and right, right and left,
        right greater than left, left greater than right,
        bilateral left|right greater than left|right
    """,
    },
    Cue.ZONE: {
        "upper": """
        upper lobe|lung|zone?, lung? apex|apices, apical, superior, upper lung zone|field,
        suprahilar, rul, lul
    """,
        "middle": """
        middle lobe|lung?, midlung, mid lung? zone?, lingula, lingular, perihilar, midzone, hilar,
        central, rml
    """,
        "lower": """
        lower lobe|lung?, lung? base, posterior? basilar, retrocardiac, inferior, infrahilar,
        costophrenic angle|sulcus, lower lung zone|field, bibasilar, bibasal, subpulmonic, rll, lll
    """,
    },
    Cue.SEVERITY: {
        "small": """
        small, mild, minimal, minimally, mildly, tiny, trace, minor, mild|small to moderate, slight,
        slightly, subtle, minute, minimal|small amount of
    """,
        "moderate": "moderate, moderately, moderate sized, medium",
        "large": """
        large, severe, severely, marked, markedly, massive, extensive, significant, significantly,
        moderate to large|severe, huge, gross
    """,
    },
}
