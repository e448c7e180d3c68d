"""Plant findings in reports and make errors in them; write reports that say nothing (gaming)."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from rrgclinical.labels import ClassId
from rrgclinical.rules import split_sentences
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS


class Critical(NamedTuple):
    """A critical finding in {grade}, on a {side}: said, said otherwise, denied, and a relative.

    near: findings whose sentences are taken out of the report that it is planted in.
    """

    said: str
    otherwise: str
    denied: str
    relative: str
    near: tuple[str, ...]


class Minor(NamedTuple):
    """A minor finding: said and denied."""

    said: str
    denied: str


_AIRSPACE = ("opacity", "consolidation", "pneumonia", "lung abnormality", "atelectasis")
CRITICAL: dict[str, Critical] = {
    "pneumothorax": Critical(
        "A {grade} {side} pneumothorax is present.",
        "There is a {grade} pneumothorax on the {side}.",
        "There is no pneumothorax.",
        "A {grade} lucency is present in the {side} lung.",
        ("pneumothorax", "lucency"),
    ),
    "pleural effusion": Critical(
        "A {grade} {side} pleural effusion is present.",
        "There is {grade} {side} pleural fluid.",
        "There is no pleural effusion.",
        "The {side} costophrenic angle is blunted.",
        ("pleural effusion", "blunted costophrenic angle", "pleural thickening"),
    ),
    "consolidation": Critical(
        "A {grade} consolidation is present in the {side} lower lobe.",
        "There is {grade} {side} lower lobe consolidation.",
        "There is no consolidation.",
        "A {grade} opacity is present in the {side} lower lobe.",
        _AIRSPACE,
    ),
    "pneumonia": Critical(
        "There is {grade} {side} lower lobe pneumonia.",
        "A {grade} pneumonia is seen in the {side} lower lobe.",
        "There is no pneumonia.",
        "There is a {grade} {side} lower lobe opacity.",
        _AIRSPACE,
    ),
    "lung lesion": Critical(
        "A {grade} mass is present in the {side} upper lobe.",
        "There is a {grade} {side} upper lobe mass.",
        "There is no lung mass.",
        "A {grade} nodular opacity is present in the {side} upper lobe.",
        ("lung lesion", "nodular opacity", "opacity", "granuloma"),
    ),
    "lung abscess": Critical(
        "A {grade} abscess is present in the {side} lower lobe.",
        "There is a {grade} {side} lower lobe abscess.",
        "There is no lung abscess.",
        "A {grade} mass is present in the {side} lower lobe.",
        ("lung abscess", "lung lesion", *_AIRSPACE),
    ),
}
MINOR: dict[str, Minor] = {
    "degenerative change": Minor(
        "There are degenerative changes of the thoracic spine.",
        "There are no degenerative changes of the spine.",
    ),
    "scoliosis": Minor("There is scoliosis of the spine.", "There is no scoliosis."),
    "tortuous aorta": Minor("The aorta is tortuous.", "The aorta is not tortuous."),
    "granuloma": Minor(
        "A calcified granuloma is present in the left upper lobe.", "There is no granuloma."
    ),
    "osteopenia": Minor("There is diffuse osteopenia.", "There is no osteopenia."),
}
INVENTED: dict[str, str] = {
    "pneumothorax": "There is a moderate right pneumothorax.",
    "free air": "There is free intraperitoneal air.",
    "edema": "There is severe pulmonary edema.",
    "lung lesion": "There is a large mass in the left upper lobe.",
    "aortic dissection": "Findings are those of aortic dissection.",
}
"""Critical findings that are unlike those planted."""
MINOR_INVENTED: dict[str, str] = {
    **{name: minor.said for name, minor in MINOR.items()},
    "aortic calcification": "There is aortic calcification.",
}
DENIALS: dict[str, str] = {
    "free air": "There is no free intraperitoneal air.",
    "lymphadenopathy": "There is no lymphadenopathy.",
    "fracture": "There is no acute fracture.",
    "pneumothorax": "There is no pneumothorax.",
    "edema": "There is no pulmonary edema.",
    "pericardial effusion": "There is no pericardial effusion.",
}
IDLE = (
    "Frontal and lateral views of the chest were obtained.",
    "The examination was compared with the one before.",
    "The results were given to the referring physician by telephone.",
    "The patient was examined in an upright position.",
)
NOTHING = ("asdf qwer zxcv.", "See above.", "1. 1. 1.")
"""Reports that say nothing, worth what the empty one is."""
TUBE = (
    "The endotracheal tube ends 4 cm above the carina.",
    "An endotracheal tube is present.",
    "The endotracheal tube ends in the right mainstem bronchus.",
)
"""A tube in its place, somewhere, and in a wrong place."""
CHANGE = (
    "which has increased in size since the prior study.",
    "which has decreased in size since the prior study.",
)
TEMPLATE = (
    "The heart size and the mediastinal contours are normal. The lungs are clear. There is no "
    "pleural effusion or pneumothorax. No acute bony abnormality."
)
SHORT_TEMPLATE = "No acute cardiopulmonary abnormality."
ALL_FINDINGS = (
    "Large bilateral pneumothoraces. Large bilateral pleural effusions. Severe pulmonary edema. "
    "Bilateral consolidation. Bilateral pneumonia. Bilateral atelectasis. Cardiomegaly. Widened "
    "mediastinum. Lung opacity. Lung mass. Rib fracture. Pleural thickening. Support devices."
)


WORDS = (15, 120)
"""Words of the reports that findings are planted in."""
_GRADES = (("small", "moderate", "large"), ("large", "moderate", "small"))
_SIDES = (("left", "right"), ("right", "left"))
_REWORDED = (
    (re.compile(r"^There (?:is|are) no "), "No evidence of "),
    (re.compile(r"^No evidence of "), "There is no "),
    (re.compile(r"^No (?!evidence)"), "There is no "),
    (re.compile(r"\bwithin normal limits\b"), "normal"),
    (re.compile(r"\bunremarkable\b"), "normal"),
)


Planted = dict[str, tuple[str, str]]
"""One report with its findings planted: perturbation -> (reference, report)."""


def sentences_of(text: str) -> list[str]:
    """The sentences of a report, by the rules."""
    return [text[start:end].strip() for start, end in split_sentences(text)]


def named_in(sentence: str, *, affirmed: bool = False) -> set[str]:
    """The findings of a sentence, all or those that it affirms or suspects."""
    return {
        CONCEPTS[m.concept].name
        for m in read_sentence(sentence)
        if not CONCEPTS[m.concept].anatomy and not (affirmed and m.status == ClassId.NEGATIVE)
    }


def plant(texts: Sequence[str], studies: int, seed: int = 0) -> list[Planted]:
    """Perturb at most `studies` of the reports.

    Those that are too short, too long, or full are left out.
    """
    rng = random.Random(seed)
    order = list(texts)
    rng.shuffle(order)
    planted: list[Planted] = []
    for text in order:
        if len(planted) == studies:
            break
        if WORDS[0] <= len(text.split()) <= WORDS[1]:
            one = _planted(sentences_of(text), len(planted), rng)
            planted += [one] if one is not None else []
    return planted


def _planted(sentences: list[str], number: int, rng: random.Random) -> Planted | None:
    affirmed = set().union(*(named_in(s, affirmed=True) for s in sentences))
    able = [name for name, one in CRITICAL.items() if affirmed.isdisjoint(one.near)]
    critical = rng.choice(able) if able else None
    minor = next((m for m in rng.sample(list(MINOR), len(MINOR)) if m not in affirmed), None)
    if critical is None or minor is None:
        return None
    out = {critical, minor, *CRITICAL[critical].near}
    rest = [s for s in sentences if out.isdisjoint(named_in(s))]
    return _Case(rest, critical, minor, number, rng).planted() if len(rest) >= 2 else None


class _Case:
    """A report being perturbed: its other sentences, and what is planted where."""

    def __init__(
        self, rest: list[str], critical: str, minor: str, number: int, rng: random.Random
    ) -> None:
        self.rest, self.rng = rest, rng
        self.name, self.critical, self.minor = critical, CRITICAL[critical], MINOR[minor]
        self.side, self.other = _SIDES[number % 2]
        self.grades = _GRADES[number // 2 % 2]
        self.place = number % (len(rest) + 1)
        self.there = {critical, minor}.union(*(named_in(s) for s in rest))

    def text(
        self,
        critical: str | None = None,
        minor: str | None = None,
        rest: Sequence[str] | None = None,
        more: Sequence[str] = (),
    ) -> str:
        """The report; "" leaves a planted sentence out."""
        rest = self.rest if rest is None else rest
        first = self.said() if critical is None else critical
        last = self.minor.said if minor is None else minor
        parts = [*rest[: self.place], first, *rest[self.place :], last, *more]
        return " ".join(part for part in parts if part)

    def said(self, grade: int = 0, side: str | None = None, form: str = "") -> str:
        words = {"grade": self.grades[grade], "side": self.side if side is None else side}
        return (form or self.critical.said).format(**words).replace("  ", " ")

    def doubted(self, grade: int = 0) -> str:
        said = self.said(grade)
        said = said.replace("There is", "There may be")
        return said.replace(" is present", " may be present")

    def choose(self, among: dict[str, str]) -> str:
        near = self.critical.near
        free = [s for name, s in among.items() if name not in self.there and name not in near]
        return self.rng.choice(free) if free else ""

    def planted(self) -> Planted:
        reference = self.text()
        order = sentences_of(reference)
        shuffled = order[:]
        self.rng.shuffle(shuffled)
        others = [s for s in self.rest if named_in(s, affirmed=True) or not named_in(s)]
        invented, little = self.choose(INVENTED), self.choose(MINOR_INVENTED)
        true = [s for name, s in DENIALS.items() if name not in self.there][:2]
        dropped_denials = " ".join([self.said(), *others, self.minor.said])
        reports = {
            "unchanged": reference,
            "sentences in another order": " ".join(shuffled),
            "reworded": self.text(
                self.said(form=self.critical.otherwise), rest=[_reworded(s) for s in self.rest]
            ),
            "a sentence said twice": f"{reference} {self.rng.choice(order)}",
            "idle sentences added": self.text(more=self.rng.sample(IDLE, 2)),
            "true denials added": self.text(more=true) if true else "",
            "doubted": self.text(self.doubted()),
            "severity one step off": self.text(self.said(1)),
            "severity two steps off": self.text(self.said(2)),
            "wrong side": self.text(self.said(side=self.other)),
            "side unsaid": self.text(self.said(side="")),
            "minor dropped": self.text(minor=""),
            "critical dropped": self.text(""),
            "minor denied": self.text(minor=self.minor.denied),
            "critical denied": self.text(self.critical.denied),
            "minor invented": self.text(more=[little]) if little else "",
            "critical invented": self.text(more=[invented]) if invented else "",
            "related finding instead": self.text(self.said(form=self.critical.relative)),
            "unrelated finding instead": self.text(invented) if invented else "",
            "denials dropped": dropped_denials if len(others) < len(self.rest) else "",
            "wrong side and minor dropped": self.text(self.said(side=self.other), ""),
            "critical dropped and invented": self.text("", more=[invented]) if invented else "",
            "severity two steps off and doubted": self.text(self.doubted(2)),
            "normal template": TEMPLATE,
            "all findings": ALL_FINDINGS,
        }
        pairs = {name: (reference, text) for name, text in reports.items() if text}
        pairs["empty"] = (reference, "")
        return pairs | self._of_change() | self._of_tube()

    def _of_change(self) -> Planted:
        changed = [f"{self.said()[:-1]}, {how}" for how in CHANGE]
        reference = self.text(changed[0])
        return {
            "change told": (reference, reference),
            "change unsaid": (reference, self.text()),
            "change reversed": (reference, self.text(changed[1])),
        }

    def _of_tube(self) -> Planted:
        if "endotracheal tube" in self.there:
            return {}
        right, unsaid, wrong = (self.text(more=[sentence]) for sentence in TUBE)
        return {
            "tip told": (right, right),
            "tip unsaid": (right, unsaid),
            "tip called wrong": (right, wrong),
            "wrong tip unsaid": (wrong, unsaid),
            "wrong tip called right": (wrong, right),
        }


def _reworded(sentence: str) -> str:
    for pattern, by in _REWORDED:
        if pattern.search(sentence):
            return pattern.sub(by, sentence, count=1)
    return sentence


_NAMES = tuple(concept.name for concept in CONCEPTS if not concept.anatomy)
_SIDE = re.compile(r"\b(?:left|right|bilateral)(?:-sided)?\s+", re.IGNORECASE)
_COPIES, _IDLE_TIMES = 5, 6


def gaming_rows(references: Sequence[str]) -> dict[str, list[str]]:
    """Reports for each reference, by what they do."""
    normal = f"{'. '.join(f'No {name}' for name in _NAMES)}."
    named = f"{'. '.join(_NAMES).capitalize()}."
    possible = " ".join(f"Possible {name}." for name in _NAMES)
    others = [*references[1:], *references[:1]]
    fixed = {
        "empty": "",
        **{f"nothing said: {text}": text for text in NOTHING},
        "normal template": TEMPLATE,
        "short template": SHORT_TEMPLATE,
        "all findings named": named,
        "all findings named possible": possible,
        "all findings denied": normal,
    }
    idle = " ".join(IDLE * (_IDLE_TIMES // 2))
    return {
        **{name: [text] * len(references) for name, text in fixed.items()},
        f"reference {_COPIES} times": [" ".join([text] * _COPIES) for text in references],
        "reference and idle words": [f"{text} {idle}" for text in references],
        "reference and more denials": [f"{text} {_more_denials(text)}" for text in references],
        "every finding hedged": [_hedged(text) for text in references],
        "no sides": [_SIDE.sub("", text) for text in references],
        "report of another patient": list(others),
    }


def is_normal(text: str) -> bool:
    """Tell a report that affirms and suspects nothing."""
    return not any(named_in(sentence, affirmed=True) for sentence in sentences_of(text))


def _more_denials(text: str) -> str:
    there = set().union(*(named_in(sentence) for sentence in sentences_of(text)))
    return " ".join(f"No {name}." for name in _NAMES if name not in there)


def _hedged(text: str) -> str:
    return " ".join(
        f"Possible {sentence[0].lower()}{sentence[1:]}"
        if named_in(sentence, affirmed=True) else sentence
        for sentence in sentences_of(text)
    )  # fmt: skip
