"""Sentences that are planted in real reports, and what an error makes of them."""

from __future__ import annotations

from typing import NamedTuple


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
