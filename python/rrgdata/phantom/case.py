"""Draw the truth of one phantom study: findings, before image and report.

Train reports are spoilt on purpose: statements left out, or told wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from rrgclinical.labels import OBSERVATIONS, ClassId
from rrgdata.phantom.config import PhantomConfig

BLANK, POSITIVE, NEGATIVE, UNCERTAIN = (int(value) for value in ClassId)

# Observation of each finding type and its probability in an abnormal study, most common first.
FINDINGS: dict[str, tuple[str, float]] = {
    "cardiomegaly": ("Cardiomegaly", 0.26),
    "effusion": ("Pleural Effusion", 0.24),
    "opacity": ("Lung Opacity", 0.20),
    "atelectasis": ("Atelectasis", 0.18),
    "device": ("Support Devices", 0.18),
    "consolidation": ("Consolidation", 0.12),
    "edema": ("Edema", 0.12),
    "pneumothorax": ("Pneumothorax", 0.08),
    "pneumonia": ("Pneumonia", 0.06),
    "mediastinum": ("Enlarged Cardiomediastinum", 0.06),
    "lesion": ("Lung Lesion", 0.06),
    "fracture": ("Fracture", 0.04),
    "thickening": ("Pleural Other", 0.035),
}
# Given the first, the second becomes this likely: heart failure, compressed lung, trauma.
TOGETHER = {
    ("edema", "cardiomegaly"): 0.65,
    ("edema", "effusion"): 0.55,
    ("effusion", "atelectasis"): 0.40,
    ("pneumothorax", "device"): 0.45,
    ("pneumothorax", "fracture"): 0.25,
}
# How often a report says that something is absent.
STATED_ABSENT = {
    "Pneumothorax": 0.95,
    "Pleural Effusion": 0.95,
    "Cardiomegaly": 0.95,
    "Consolidation": 0.8,
    "Enlarged Cardiomediastinum": 0.45,
    "Edema": 0.35,
    "Fracture": 0.35,
    "Lung Opacity": 0.55,
    "Pneumonia": 0.15,
    "Lung Lesion": 0.1,
}
# What a thorough report mentions when it is absent is what is mentioned at least this often.
ON_CHECKLIST = 0.3
LUNG = frozenset({"opacity", "atelectasis", "consolidation", "edema", "pneumonia", "lesion"})
SIDED = frozenset(FINDINGS) - {"cardiomegaly", "edema", "mediastinum", "device"}
ZONED = frozenset({"opacity", "consolidation", "pneumonia", "lesion"})
MAY_RESOLVE = ("effusion", "pneumothorax", "edema", "consolidation")
DEVICES = ("endotracheal tube", "pacemaker", "central line", "chest tube", "enteric tube")


@dataclass(frozen=True)
class Finding:
    """One finding; sides are the patient's (right is left in the image).

    `severity` 1 small, 2 moderate, 3 large. `cause` is the disease the report offers for a lung
    density, stated as certain when `cause_certain`. `change` is relative to the prior study:
    "" (no prior), "new", "unchanged", "larger" or "smaller".
    """

    name: str
    side: str = ""
    zone: str = ""
    severity: int = 2
    uncertain: bool = False
    cause: str = ""
    cause_certain: bool = False
    kind: str = ""
    change: str = ""

    def observations(self) -> dict[str, int]:
        """Class id of every observation this finding's sentence speaks of."""
        out = {FINDINGS[self.name][0]: UNCERTAIN if self.uncertain else POSITIVE}
        if self.cause:
            observation = FINDINGS[self.cause][0]
            out[observation] = POSITIVE if self.cause_certain else UNCERTAIN
        return out


@dataclass(frozen=True)
class Case:
    """All a study shows and says. `negated` are observations stated absent, `absent_sides` pairs
    (finding, side) stated absent beside the other lung, `earlier` what the prior frontal shows
    (None without one) and `resolved` what of that is gone."""

    seed: tuple[int, ...]
    findings: tuple[Finding, ...]
    negated: tuple[str, ...]
    absent_sides: tuple[tuple[str, str], ...] = ()
    earlier: tuple[Finding, ...] | None = None
    resolved: tuple[Finding, ...] = ()
    lateral: bool = False

    def labels(self) -> tuple[int, ...]:
        """14 class ids in CheXbert order; positive outweighs uncertain outweighs negative."""
        return labels_of(self.findings, self.negated)


def labels_of(findings: Iterable[Finding], negated: Iterable[str]) -> tuple[int, ...]:
    """Label statements; No Finding is positive where there are devices at most."""
    ids = {name: NEGATIVE for name in negated}
    for finding in findings:
        for name, value in finding.observations().items():
            if ids.get(name) != POSITIVE:
                ids[name] = value
    abnormal = any(v in (POSITIVE, UNCERTAIN) for k, v in ids.items() if k != "Support Devices")
    ids["No Finding"] = BLANK if abnormal else POSITIVE
    return tuple(ids.get(name, BLANK) for name in OBSERVATIONS)


def sample_case(config: PhantomConfig, seed: tuple[int, ...]) -> Case:
    """Draws one case; the same configuration and seed give the same case."""
    rng = np.random.default_rng([*seed, 1])
    names = _draw_names(config, rng)
    prior = rng.random() < config.prior
    findings = _above_fluid([draw_finding(name, config, rng) for name in names])
    earlier: list[Finding] | None = None
    resolved: list[Finding] = []
    if prior:
        findings, earlier = _look_back(findings, rng)
        choices = [
            n
            for n in tuple(FINDINGS)[: config.findings]
            if n in MAY_RESOLVE
            and n not in names
            and not (n != "effusion" and n in LUNG and LUNG & set(names))
        ]
        if choices and rng.random() < 0.25:
            gone = draw_finding(str(rng.choice(choices)), config, rng)
            resolved = [replace(gone, uncertain=False, cause="", cause_certain=False)]
            earlier += resolved
    negated = () if config.terse else _draw_negated(findings, resolved, config.thorough, rng)
    absent_sides = tuple(
        (f.name, other_side(f.side))
        for f in findings
        if f.name in ("effusion", "pneumothorax")
        and f.side != "bilateral"
        and not f.uncertain
        and rng.random() < 0.12
    )
    return Case(
        seed=seed,
        findings=tuple(findings),
        negated=negated,
        absent_sides=absent_sides,
        earlier=None if earlier is None else tuple(earlier),
        resolved=tuple(resolved),
        lateral=bool(rng.random() < config.lateral),
    )


def _draw_names(config: PhantomConfig, rng: np.random.Generator) -> list[str]:
    names = tuple(FINDINGS)[: config.findings]
    base = {n: min(0.9, FINDINGS[n][1] * config.prevalence) for n in names}
    if rng.random() < config.normal:
        device = "device" in base and rng.random() < 0.5 * base["device"]
        return ["device"] if device else []
    drawn = {n for n in names if rng.random() < base[n]}
    for (cause, also), p in TOGETHER.items():
        if cause in drawn and also in base and rng.random() < min(0.9, p * config.prevalence):
            drawn.add(also)
    if not drawn - {"device"}:
        weights = np.array([base[n] for n in names if n != "device"])
        other = [n for n in names if n != "device"]
        drawn.add(str(rng.choice(other, p=weights / weights.sum())) if other else "device")
    if "pneumonia" in drawn:
        drawn.discard("consolidation")
    return [n for n in names if n in drawn]


def draw_finding(name: str, config: PhantomConfig, rng: np.random.Generator) -> Finding:
    """Draws side, zone, severity, certainty and cause of a finding of this type."""
    side = zone = cause = kind = ""
    cause_certain = False
    severity = int(rng.choice([1, 2, 3], p=[0.4, 0.38, 0.22]))
    if name in SIDED:
        side = "right" if rng.random() < 0.5 else "left"
        if name in ("effusion", "atelectasis") and rng.random() < 0.3:
            side = "bilateral"
    if name in ZONED:
        zones = ["upper", "middle", "lower"] if side == "right" else ["upper", "lower"]
        weights = [0.27, 0.2, 0.53] if side == "right" else [0.35, 0.65]
        zone = str(rng.choice(zones, p=weights))
    drawable = tuple(FINDINGS)[: config.findings]
    if name == "consolidation" and rng.random() < 0.45:
        cause, cause_certain = "pneumonia", bool(rng.random() < 0.4)
    elif name == "opacity" and rng.random() < 0.4:
        cause = "pneumonia" if rng.random() < 0.5 else "atelectasis"
    if cause not in drawable:
        cause, cause_certain = "", False
    if name == "device":
        kind = str(rng.choice(DEVICES, p=[0.2, 0.22, 0.28, 0.12, 0.18]))
        if kind in ("pacemaker", "central line", "chest tube"):
            side = "left" if rng.random() < (0.75 if kind == "pacemaker" else 0.3) else "right"
    doubt = name not in ("device",) and not cause and bool(rng.random() < config.uncertain)
    return Finding(name, side, zone, severity, doubt, cause, cause_certain, kind)


def _above_fluid(findings: list[Finding]) -> list[Finding]:
    """Moves what more than a small effusion would hide into the upper lobe."""
    flooded = {
        side
        for f in findings
        if f.name == "effusion" and f.severity > 1
        for side in (("left", "right") if f.side == "bilateral" else (f.side,))
    }
    return [replace(f, zone="upper") if f.zone and f.side in flooded else f for f in findings]


def _look_back(
    findings: list[Finding], rng: np.random.Generator
) -> tuple[list[Finding], list[Finding]]:
    """Says how each finding changed, and what the earlier image therefore shows."""
    now, earlier = [], []
    for finding in findings:
        step = {"new": 0, "unchanged": 0, "larger": -1, "smaller": 1}
        change = str(rng.choice(list(step), p=[0.3, 0.35, 0.2, 0.15]))
        before = finding.severity + step[change]
        sizeless = finding.name in ("device", "fracture", "lesion")
        if finding.uncertain or (
            change in ("larger", "smaller") and (sizeless or not 1 <= before <= 3)
        ):
            change, before = "unchanged", finding.severity
        now.append(replace(finding, change=change))
        if change != "new":
            earlier.append(replace(finding, severity=before))
    return now, earlier


def _draw_negated(
    findings: list[Finding], resolved: list[Finding], thorough: float, rng: np.random.Generator
) -> tuple[str, ...]:
    present = {name for f in findings for name in f.observations()}
    names = {f.name for f in findings}
    if names & LUNG:
        present |= {"Lung Opacity", "Pneumonia"}
    if names & {"consolidation", "pneumonia"}:
        present.add("Consolidation")
    gone = {FINDINGS[f.name][0] for f in resolved}
    return tuple(
        name
        for name in OBSERVATIONS
        if name not in present and (rng.random() < _stated(name, thorough) or name in gone)
    )


def _stated(name: str, thorough: float) -> float:
    """How often a report says that it is absent: the usual rate, or nearer to always or never."""
    usual = STATED_ABSENT.get(name, 0.0)
    return usual + thorough * (float(usual >= ON_CHECKLIST) - usual)


def other_side(side: str) -> str:
    """The other lung; right for a bilateral finding."""
    return "left" if side == "right" else "right"


def damage(
    case: Case, config: PhantomConfig
) -> tuple[list[Finding], list[str], list[dict[str, str]]]:
    """Findings and denials as the study's author states them, and what was done to which.

    A share `careful` of the authors spoils nothing. The others leave each finding out with
    probability `omit`, unless it is of the `reported` most common types; what they do not leave
    out they tell wrongly with probability `garble`: on the other side, denied, or replaced by a
    finding the case does not have.
    """
    if np.random.default_rng([*case.seed, 5]).random() < config.careful:
        return list(case.findings), list(case.negated), []
    rng = np.random.default_rng([*case.seed, 4])
    findings: list[Finding] = []
    negated = list(case.negated)
    log: list[dict[str, str]] = []
    always = tuple(FINDINGS)[: config.reported]
    for finding in case.findings:
        draw = rng.random()
        omit = 0.0 if finding.name in always else config.omit
        if draw < omit:
            log.append({"finding": finding.name, "how": "omitted"})
        elif draw < omit + (1 - omit) * config.garble:
            how = _garble(finding, case, findings, negated, config, rng)
            log.append({"finding": finding.name, "how": how})
        else:
            findings.append(finding)
    observations = {name for f in findings for name in f.observations()}
    if LUNG & {f.name for f in findings}:
        observations |= {"Lung Opacity"}
    return findings, [name for name in negated if name not in observations], log


def _garble(
    finding: Finding,
    case: Case,
    findings: list[Finding],
    negated: list[str],
    config: PhantomConfig,
    rng: np.random.Generator,
) -> str:
    drawable = tuple(FINDINGS)[: config.findings]
    absent = [n for n in drawable if n not in {f.name for f in (*case.findings, *findings)}]
    ways = ["negated"]
    if finding.side in ("left", "right") and finding.zone != "middle":
        ways.append("other side")
    if absent:
        ways.append("swapped")
    how = str(rng.choice(ways))
    if how == "other side":
        findings.append(replace(finding, side=other_side(finding.side)))
    elif how == "negated":
        negated.append(FINDINGS[finding.name][0])
    else:
        instead = draw_finding(str(rng.choice(absent)), config, rng)
        findings.append(replace(instead, change=""))
        how = f"swapped for {instead.name}"
    return how
