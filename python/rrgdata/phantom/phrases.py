"""Wordings of the phantom's reports per finding, most template-like first.

Fields: `{size}` the adjective of severity, `{adv}` its adverb, `{side}`, `{on}` "on the left" or
"bilaterally", `{lobe}` "right lower lobe", `{inlobe}` "in the right lower lobe", `{s}` and `{be}`
for number, `{a}` an article that fits what follows (none in the plural), `{kind}` of a lesion or
device. A wording begins in lower case; the report capitalises.
"""

from __future__ import annotations

import re


def _each(text: str) -> tuple[str, ...]:
    """List the wordings of a text, each of which ends in a stop."""
    return tuple(re.findall(r"\S[^.]*\.", " ".join(text.split())))


ADJECTIVES: dict[str, tuple[str, str, str]] = {
    "cardiomegaly": ("mild", "moderate", "severe"),
    "effusion": ("small", "moderate", "large"),
    "opacity": ("subtle", "patchy", "extensive"),
    "atelectasis": ("minimal", "mild", "moderate"),
    "consolidation": ("small", "focal", "dense"),
    "edema": ("mild", "moderate", "severe"),
    "pneumothorax": ("small", "moderate", "large"),
    "pneumonia": ("mild", "focal", "extensive"),
    "mediastinum": ("mildly", "moderately", "markedly"),
    "lesion": ("small", "round", "large"),
    "fracture": ("subtle", "displaced", "displaced"),
    "thickening": ("mild", "moderate", "extensive"),
}
ADVERBS = ("mildly", "moderately", "severely")

POSITIVE: dict[str, tuple[str, ...]] = {
    "cardiomegaly": _each("""
        the heart is {adv} enlarged. {size} cardiomegaly. there is {size} cardiomegaly.
        cardiac silhouette is {adv} enlarged. {size} enlargement of the cardiac silhouette.
        heart size is {adv} enlarged. cardiomegaly is present, {size} in degree.
        enlarged heart, {size} in degree. note is made of {size} cardiomegaly.
        imaging shows {a}{adv} enlarged heart. again the heart appears {adv} enlarged.
        findings include {size} cardiomegaly.
    """),
    "effusion": _each("""
        {size} {side} pleural effusion{s}. there {be} {a}{size} {side} pleural effusion{s}.
        {side} pleural effusion{s}, {size} in size. pleural effusion{s} {on}, {size} in size.
        blunting of the {side} costophrenic angle{s} is consistent with {a}{size} pleural
        effusion{s}.
        layering {side} pleural effusion{s}, {size} in size.
        note is made of {a}{size} {side} pleural effusion{s}.
        {on} there {be} {a}{size} pleural effusion{s}.
        imaging shows {a}{size} {side} pleural effusion{s}.
        {a}{size} pleural effusion{s} {be} seen {on}.
        findings include {a}{size} {side} pleural effusion{s}.
        evidence of {a}{size} {side} pleural effusion{s}.
    """),
    "opacity": _each("""
        {size} opacity {inlobe}. there is {a}{size} {lobe} opacity.
        {lobe} opacity, {size} in appearance. opacity {inlobe}, {size} in appearance.
        airspace opacity is seen {inlobe}, {size} in appearance. hazy {lobe} opacity.
        note is made of {a}{size} opacity {inlobe}. {inlobe} there is {a}{size} opacity.
        imaging shows {a}{size} {lobe} opacity. {a}{size} opacity is seen {inlobe}.
        findings include {a}{size} {lobe} opacity. evidence of {a}{size} {lobe} opacity.
    """),
    "atelectasis": _each("""
        {size} atelectasis {atbase}. there is {size} {side} basilar atelectasis.
        {side} basilar atelectasis, {size} in degree. linear atelectasis {atbase}, {size} in degree.
        atelectasis is seen {atbase}, {size} in degree. streaky {size} atelectasis {atbase}.
        note is made of {size} atelectasis {atbase}. {atbase} there is {size} atelectasis.
        imaging shows {size} {side} basilar atelectasis. basilar atelectasis {on}, {size} in degree.
        findings include {size} atelectasis {atbase}. evidence of {size} {side} basilar atelectasis.
    """),
    "consolidation": _each("""
        {lobe} consolidation. there is {a}{size} consolidation {inlobe}.
        {size} {lobe} consolidation. consolidation {inlobe}. dense airspace consolidation {inlobe}.
        airspace consolidation is seen {inlobe}. note is made of {size} consolidation {inlobe}.
        {inlobe} there is {size} consolidation. imaging shows {a}{size} {lobe} consolidation.
        {a}{size} consolidation is seen {inlobe}. findings include {a}{size} {lobe} consolidation.
        evidence of {lobe} consolidation.
    """),
    "edema": _each("""
        {size} pulmonary edema. there is {size} pulmonary edema. pulmonary edema, {size} in degree.
        diffuse pulmonary edema is seen, {size} in degree. bilateral {size} pulmonary edema.
        interstitial edema is present, {size} in degree. note is made of {size} pulmonary edema.
        both lungs show {size} pulmonary edema. imaging shows {size} pulmonary edema.
        the lungs show {size} interstitial edema. findings include {size} pulmonary edema.
        evidence of {size} pulmonary edema.
    """),
    "pneumothorax": _each("""
        {size} {side} pneumothorax. there is {a}{size} {side} pneumothorax.
        {side} pneumothorax, {size} in size. pneumothorax {on}, {size} in size.
        apical pneumothorax {on}, {size} in size. {side} apical pneumothorax, {size} in size.
        note is made of {a}{size} {side} pneumothorax. {on} there is {a}{size} pneumothorax.
        imaging shows {a}{size} {side} pneumothorax. {a}{size} pneumothorax is seen {on}.
        findings include {a}{size} {side} pneumothorax. evidence of {a}{size} {side} pneumothorax.
    """),
    "pneumonia": _each("""
        {lobe} pneumonia. there is {size} {lobe} pneumonia. {size} pneumonia {inlobe}.
        pneumonia {inlobe}. {lobe} findings are consistent with pneumonia.
        focal pneumonia of the {lobe}. note is made of {size} {lobe} pneumonia.
        {inlobe} there is {size} pneumonia. imaging shows {size} pneumonia {inlobe}.
        {size} pneumonia is seen {inlobe}. findings include {size} {lobe} pneumonia.
        evidence of {lobe} pneumonia.
    """),
    "mediastinum": _each("""
        the mediastinum is {size} widened. {size} widened mediastinum.
        there is {size} widened mediastinum. mediastinum is {size} enlarged. widened mediastinum.
        enlarged mediastinum. note is made of {a}{size} widened mediastinum.
        the mediastinal contour is {size} widened. imaging shows {a}{size} widened mediastinum.
        {a}{size} widened mediastinum is seen. findings include {a}{size} widened mediastinum.
        widening of the mediastinum is seen.
    """),
    "lesion": _each("""
        {size} {kind} {inlobe}. there is {a}{size} {kind} {inlobe}. {lobe} {kind}.
        {kind} {inlobe}, {size} in appearance. well defined {lobe} {kind}. {size} {lobe} {kind}.
        note is made of {a}{size} {kind} {inlobe}. {inlobe} there is {a}{size} {kind}.
        imaging shows {a}{size} {lobe} {kind}. {a}{size} {kind} is seen {inlobe}.
        findings include {a}{size} {lobe} {kind}. evidence of {a}{size} {lobe} {kind}.
    """),
    "fracture": _each("""
        {size} {side} rib fracture. there is {a}{size} {side} rib fracture. {side} rib fracture.
        fracture of {a}{side} rib. acute {side} rib fracture. rib fracture {on}.
        note is made of {a}{size} {side} rib fracture. {on} there is {a}{size} rib fracture.
        imaging shows {a}{size} {side} rib fracture. {a}{size} rib fracture is seen {on}.
        findings include {a}{size} {side} rib fracture. evidence of {a}{side} rib fracture.
    """),
    "thickening": _each("""
        {side} pleural thickening. there is {size} {side} pleural thickening.
        {size} {side} pleural thickening. pleural thickening {on}.
        lateral pleural thickening is seen {on}.
        {side} lateral pleural thickening, {size} in degree.
        note is made of {size} {side} pleural thickening. {on} there is {size} pleural thickening.
        imaging shows {size} {side} pleural thickening. {size} pleural thickening is seen {on}.
        findings include {size} {side} pleural thickening. evidence of {side} pleural thickening.
    """),
}

DEVICE: dict[str, tuple[str, ...]] = {
    "endotracheal tube": _each("""
        endotracheal tube in place. there is an endotracheal tube above the carina.
        the endotracheal tube ends above the carina. an endotracheal tube is present.
        tip of the endotracheal tube is above the carina.
        support devices include an endotracheal tube.
    """),
    "pacemaker": _each("""
        {side} pacemaker in place. there is a {side} chest pacemaker.
        a {side} pacemaker is present with leads in the heart.
        pacemaker leads from the {side} chest are in place.
        leads of a {side} pacemaker are in place. support devices include a {side} pacemaker.
    """),
    "central line": _each("""
        {side} central venous line in place. there is a {side} central venous line.
        a {side} central venous line ends in the vena cava.
        central venous line from the {side} in place.
        tip of the {side} central venous line is in the vena cava.
        support devices include a {side} central venous line.
    """),
    "chest tube": _each("""
        {side} chest tube in place. there is a {side} chest tube. a {side} chest tube is present.
        chest tube is present {on}. tip of a {side} chest tube is seen {on}.
        support devices include a {side} chest tube.
    """),
    "enteric tube": _each("""
        enteric tube in place. there is an enteric tube in the stomach.
        the enteric tube ends in the stomach. an enteric tube is present.
        tip of the enteric tube is in the stomach. support devices include an enteric tube.
    """),
}

# The bare noun phrase that uncertain and comparing sentences are built on.
NOUN: dict[str, str] = {
    "cardiomegaly": "{size} cardiomegaly",
    "effusion": "{size} {side} pleural effusion{s}",
    "opacity": "{size} {lobe} opacity",
    "atelectasis": "{size} {side} basilar atelectasis",
    "consolidation": "{lobe} consolidation",
    "edema": "{size} pulmonary edema",
    "pneumothorax": "{size} {side} pneumothorax",
    "pneumonia": "{lobe} pneumonia",
    "mediastinum": "{size} widened mediastinum",
    "lesion": "{size} {lobe} {kind}",
    "fracture": "{side} rib fracture",
    "thickening": "{size} {side} pleural thickening",
    "device": "{side}{kind}",
}
MASS_NOUNS = frozenset(
    {"cardiomegaly", "atelectasis", "consolidation", "edema", "pneumonia", "thickening"}
)

UNCERTAIN = _each("""
    possible {noun}. there may be {a}{noun}. {a}{noun} cannot be excluded.
    findings may represent {a}{noun}. questionable {noun}. {a}{noun} may be present.
""")
CAUSE_UNCERTAIN = (
    ", which may represent {cause}.",
    ", concerning for {cause}.",
    ", possibly {cause}.",
    ", suspicious for {cause}.",
    ", which could represent {cause}.",
)
CAUSE_CERTAIN = (", consistent with {cause}.", ", compatible with {cause}.")
CHANGE: dict[str, tuple[str, ...]] = {
    "new": _each("""
        new {noun}. there is {a}new {noun}. {noun}, new since the prior study.
        compared to the prior study there is {a}new {noun}.
    """),
    "unchanged": _each("""
        unchanged {noun}. stable {noun}. {noun}, unchanged from the prior study.
        compared to the prior study the {noun} {be} unchanged.
    """),
    "larger": _each("""
        {noun}, increased since the prior study. interval increase in {noun}.
        compared to the prior study the {noun} {have} increased. worsening {noun}.
    """),
    "smaller": _each("""
        {noun}, decreased since the prior study. interval decrease in {noun}.
        compared to the prior study the {noun} {have} decreased. improving {noun}.
    """),
}

NEGATIVE: dict[str, tuple[str, ...]] = {
    "Cardiomegaly": ("heart size is normal.", "the heart is normal in size.", "normal heart size."),
    "Enlarged Cardiomediastinum": (
        "mediastinal contours are normal.",
        "the mediastinum is within normal limits.",
    ),
    "Pleural Effusion": ("no pleural effusion.", "there is no pleural effusion."),
    "Pneumothorax": ("no pneumothorax.", "there is no pneumothorax."),
    "Consolidation": ("no focal consolidation.", "there is no focal consolidation."),
    "Edema": ("no pulmonary edema.", "there is no pulmonary edema."),
    "Lung Opacity": ("no focal opacity.", "there is no focal opacity."),
    "Pneumonia": ("no evidence of pneumonia.", "there is no evidence of pneumonia."),
    "Fracture": ("no acute fracture.", "no displaced rib fracture."),
    "Lung Lesion": ("no suspicious nodule or mass.",),
    "Atelectasis": ("no atelectasis.",),
    "Pleural Other": ("no pleural thickening.",),
    "Support Devices": ("no support devices.",),
}
# One sentence may deny several observations; tried in this order, each with its probability.
NEGATIVE_TOGETHER: dict[tuple[str, ...], tuple[float, *tuple[str, ...]]] = {
    ("Consolidation", "Lung Opacity"): (
        0.8,
        "the lungs are clear without focal consolidation.",
        "clear lungs without focal consolidation.",
    ),
    ("Consolidation", "Pleural Effusion", "Pneumothorax"): (
        0.45,
        "no focal consolidation, pleural effusion, or pneumothorax.",
        "there is no focal consolidation, pleural effusion, or pneumothorax.",
    ),
    ("Pleural Effusion", "Pneumothorax"): (
        0.75,
        "no pleural effusion or pneumothorax.",
        "there is no pleural effusion or pneumothorax.",
        "no pneumothorax or pleural effusion is seen.",
    ),
    ("Cardiomegaly", "Enlarged Cardiomediastinum"): (
        0.6,
        "heart size and mediastinal contours are normal.",
        "the heart and mediastinum are normal.",
    ),
}
ABSENT_SIDE = ("no {side} {thing}.", "there is no {side} {thing}.")
RESOLVED = ("no residual {thing} since the prior study.",)
THING = {
    "effusion": "pleural effusion",
    "pneumothorax": "pneumothorax",
    "edema": "pulmonary edema",
    "consolidation": "consolidation",
}

OPENING = {
    False: ("single frontal view of the chest was obtained.", "frontal view of the chest."),
    True: (
        "frontal and lateral views of the chest were obtained.",
        "frontal and lateral views of the chest.",
    ),
}
# Label-free sentences that fill a report as they fill real ones, each with this probability.
FILLERS = (
    ("heart", 0.3, "the trachea is midline."),
    ("bones", 0.25, "the upper abdomen is unremarkable."),
    ("bones", 0.2, "soft tissues of the chest wall are unremarkable."),
)
CLOSING_NORMAL = (
    "no acute cardiopulmonary abnormality.",
    "no acute cardiopulmonary process.",
    "normal chest.",
)

INDICATION = {
    "cardiomegaly": ("shortness of breath.", "heart failure."),
    "edema": ("shortness of breath.", "heart failure."),
    "effusion": ("shortness of breath.", "decreased breath sounds."),
    "consolidation": ("cough and fever.", "fever."),
    "pneumonia": ("cough and fever.", "cough."),
    "opacity": ("cough.", "fever."),
    "pneumothorax": ("chest pain.", "trauma."),
    "fracture": ("trauma.", "fall."),
    "device": ("evaluate line placement.", "intubated."),
    "lesion": ("weight loss.", "smoker."),
    "": ("chest pain.", "cough.", "preoperative evaluation.", "shortness of breath."),
}
TECHNIQUE = {
    (False, "pa"): "PA view of the chest.",
    (False, "ap"): "Portable AP view of the chest.",
    (True, "pa"): "PA and lateral views of the chest.",
    (True, "ap"): "AP and lateral views of the chest.",
}
