"""Parts of sentences that deny, doubt or ask for a finding: the class follows from the parts.

`{}` is the finding. Each kind is a list of templates with slots; a slot's words are in `PARTS`.
"""

from __future__ import annotations

import random
import re

from rrgclinical import ClassId

FINDINGS = {
    "Enlarged Cardiomediastinum": "mediastinal widening",
    "Cardiomegaly": "cardiomegaly",
    "Lung Opacity": "airspace opacity",
    "Lung Lesion": "lung nodule",
    "Edema": "pulmonary oedema",
    "Consolidation": "consolidation",
    "Pneumonia": "pneumonia",
    "Atelectasis": "atelectasis",
    "Pneumothorax": "pneumothorax",
    "Pleural Effusion": "pleural effusion",
    "Pleural Other": "pleural thickening",
    "Fracture": "rib fracture",
    "Support Devices": "pacemaker",
}
PARTS = {
    "who": "CT|the radiograph|this study|the chest x-ray|the findings|we|appearances|the films",
    "adverb": "|definitely |definitively |confidently |reliably |convincingly |clearly |entirely "
    "|completely |safely |fully |absolutely |conclusively |radiographically |certainly |distinctly "
    "|unequivocally |positively |readily |totally |with certainty |with confidence ",
    "surely": "|definitely |definitively |confidently |reliably |convincingly |clearly |distinctly "
    "|conclusively |unequivocally |positively |readily |certainly |radiographically |obviously ",
    "excluded": "excluded|ruled out",
    "exclude": "exclude|rule out|r/o",
    "excludes": "exclude|rule out|excluded|ruled out|have excluded|have ruled out|excludes",
    "is": "|is |was |has been |is now |can be |has now been ",
    "cannot": "cannot|can not|can't|could not|couldn't|cannot yet",
    "duty": "should|must|needs to|has to|will need to|ought to|remains to|would need to|is to"
    "|would have to|still needs to|may need to",
    "must": "must|should|need to|have to|ought to|will need to",
    "not": "does not|do not|did not|doesn't|cannot|could not|can't|would not",
    "seen": "seen|identified|visualised|visualized|appreciated|demonstrated|detected|noted|shown"
    "|visible|evident|apparent|present|found|discernible|observed|recognised|delineated",
    "see": "see|identify|visualise|visualize|appreciate|demonstrate|detect|find|show|discern"
    "|recognise|delineate",
    "failing": "failure to|failed to|fails to|fail to|unable to|inability to|not able to",
    "nothing": "nil|no|zero|nil evidence of|nil convincing|nil evidence for|nil sign of|no e/o"
    "|nil obvious|nil acute|nil significant|nil focal|nil definite|nil features of|nil signs of",
    "low": "low|very low|remote|slim|extremely low|negligible|minimal|poor|slight|relatively low",
    "chance": "probability|likelihood|chance|possibility|suspicion|index of suspicion",
    "is_low": "is low|is very low|is remote|is slim|is negligible|is considered low|is minimal",
    "little": "little evidence of|little to suggest|scant evidence of|little evidence for"
    "|little or no evidence of|little to no evidence of|scarce evidence of|hardly any evidence of",
    "side": "the chest|this study|the right lung|the film",
    "not_out": "not|never|not yet",
    "whether": "difficult to|hard to|impossible to|unable to|not possible to",
}
NEGATIVE, UNCERTAIN, POSITIVE = ClassId.NEGATIVE, ClassId.UNCERTAIN, ClassId.POSITIVE
KINDS: dict[str, tuple[ClassId, tuple[str, ...]]] = {
    "excluded": (NEGATIVE, ("{} <is><adverb><excluded>.", "{}: <adverb><excluded>.")),
    "someone excludes": (NEGATIVE, ("<who> <excludes> {}.",)),
    "not excluded": (
        UNCERTAIN,
        (
            "{} <cannot> be <adverb><excluded>.",
            "{} <not_out> <adverb><excluded>.",
            "{} is <not_out> <adverb><excluded>.",
            "{} has <not_out> been <adverb><excluded>.",
            "we <cannot> <adverb><exclude> {}.",
            "<who> <not> <adverb><exclude> {}.",
            "it is <whether> <adverb><exclude> {}.",
            "{} is <whether> <adverb><exclude>.",
        ),
    ),
    "duty": (UNCERTAIN, ("{} <duty> be <adverb><excluded>.", "we <must> <adverb><exclude> {}.")),
    "not seen": (
        NEGATIVE,
        (
            "{} not <surely><seen>.",
            "{} is not <surely><seen>.",
            "{} has not been <surely><seen>.",
            "{} is no longer <surely><seen>.",
            "{} <cannot> be <surely><seen>.",
            "{} is nowhere <seen>.",
        ),
    ),
    "failing to see": (
        NEGATIVE,
        ("<failing> <surely><see> {}.", "we <cannot> <surely><see> {}.", "<who> <not> <see> {}."),
    ),
    "nothing": (
        NEGATIVE,
        ("<nothing> {}.", "{}: nil.", "{} - nil.", "{} nil.", "there is <nothing> {} <seen>."),
    ),
    "free": (
        NEGATIVE,
        (
            "{}-free.",
            "<side> is {}-free.",
            "<side> is free of {}.",
            "<side> lacks {}.",
            "lack of {}.",
            "-ve for {}.",
            "<side> is -ve for {}.",
            "{} -ve.",
            "{}: -ve.",
        ),
    ),
    "improbable": (
        NEGATIVE,
        (
            "<low> <chance> of {}.",
            "there is a <low> <chance> of {}.",
            "the <chance> of {} <is_low>.",
            "<chance> of {} <is_low>.",
            "<little> {}.",
            "there is <little> {}.",
        ),
    ),
    "signs": (POSITIVE, ("signs of {}.", "signs of {} are seen.", "normal heart. Signs of {}.")),
    "no signs": (NEGATIVE, ("no signs of {}.", "there are no signs of {}.", "no sign of {}.")),
    "unknown": (
        UNCERTAIN,
        (
            "{} qwzzt be <excluded>.",
            "{} qwzzt <excluded>.",
            "{} canot be <adverb><excluded>.",
            "{} cannnot be <excluded>.",
        ),
    ),
}
_SLOT = re.compile(r"<(\w+)>")


def drawn(template: str, count: int, rng: random.Random) -> list[str]:
    """`count` readings of a template, each with one of the words of its slots."""
    return [
        _SLOT.sub(lambda slot: rng.choice(PARTS[slot[1]].split("|")), template)
        for _ in range(count)
    ]
