"""Spoils train reports on purpose: statements left out, or told wrongly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rrgdata.phantom.case import (
    FINDINGS,
    LUNG,
    Case,
    Finding,
    draw_finding,
    other_side,
)
from rrgdata.phantom.config import PhantomConfig


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
            log.append(
                {
                    "finding": finding.name,
                    "how": _garble(finding, case, findings, negated, config, rng),
                }
            )
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
