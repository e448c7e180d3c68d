"""Writes a case's report and its context sections."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rrgclinical.grounding import GRID, Box, with_boxes
from rrgdata.phantom import phrases
from rrgdata.phantom.case import FINDINGS, Case, Finding
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.draw import draw_frontal

_GROUPS = {
    "heart": ("cardiomegaly", "mediastinum", "Cardiomegaly", "Enlarged Cardiomediastinum"),
    "pleura": (
        *("effusion", "pneumothorax", "thickening"),
        *("Pleural Effusion", "Pneumothorax", "Pleural Other"),
    ),
    "bones": ("fracture", "Fracture"),
    "devices": ("device", "Support Devices"),
}
"""Findings and observations by the part of a report that tells of them; all others: the lungs."""
_ORDERS = (
    (("heart", "lungs", "pleura", "bones", "devices"), 0.45),
    (("devices", "lungs", "pleura", "heart", "bones"), 0.3),
    (("devices", "heart", "lungs", "pleura", "bones"), 0.25),
)


def write_report(
    case: Case, findings: Sequence[Finding], negated: Sequence[str], config: PhantomConfig
) -> str:
    """The report that states `findings` and denies `negated`; clean when both are the case's."""
    rng = np.random.default_rng([*case.seed, 2])
    if config.terse:
        return _in_any_order(case, findings, negated, config, rng)
    groups: dict[str, list[str]] = {g: [] for g in ("heart", "lungs", "pleura", "bones", "devices")}
    for finding in findings:
        groups[_group(finding.name)].append(_positive(case, finding, config, rng))
        for name, side in case.absent_sides:
            if name == finding.name and finding.side not in (side, "bilateral"):
                template = _pick(phrases.ABSENT_SIDE, config, rng)
                text = template.format(side=side, thing=phrases.THING[name])
                groups[_group(name)].append(text)
    for group, text in _negatives(case, negated, config, rng):
        groups[group].append(text)
    for group, probability, text in phrases.FILLERS:
        if rng.random() < probability * (1 - config.thorough):
            groups[group].append(text)
    if rng.random() < 0.3 * (1 - config.templated):
        for sentences in groups.values():
            rng.shuffle(sentences)
    order = _order(config, rng)
    sentences = [text for group in order for text in groups[group]]
    if rng.random() < 0.6:
        sentences.insert(0, _pick(phrases.OPENING[case.lateral], config, rng))
    if not findings and rng.random() < 0.8 + 0.2 * config.thorough:
        sentences.append(_normal(phrases.CLOSING_NORMAL, config, rng))
    return _join(sentences)


def write_context(case: Case) -> tuple[str, str, str]:
    """Indication, technique and comparison of a case."""
    rng = np.random.default_rng([*case.seed, 3])
    names = [f.name for f in case.findings if f.name in phrases.INDICATION]
    reason = str(rng.choice(names)) if names and rng.random() < 0.5 else ""
    indication = str(rng.choice(phrases.INDICATION[reason]))
    sick = any(f.name == "device" for f in case.findings)
    projection = "ap" if rng.random() < (0.7 if sick else 0.2) else "pa"
    technique = phrases.TECHNIQUE[case.lateral, projection]
    comparison = "None." if case.earlier is None else "Prior chest radiograph."
    return indication[0].upper() + indication[1:], technique, comparison


def _in_any_order(
    case: Case,
    findings: Sequence[Finding],
    negated: Sequence[str],
    config: PhantomConfig,
    rng: np.random.Generator,
) -> str:
    sentences = [_positive(case, finding, config, rng) for finding in findings]
    # a clean case of this kind denies nothing, but a garbled one may
    sentences += [text for _, text in _negatives(case, negated, config, rng)]
    rng.shuffle(sentences)
    # SPEC 13: a report is No Finding where it says so, so a normal one has to.
    if not negated and all(finding.name == "device" for finding in findings):
        sentences.append(_normal(phrases.CLOSING_NORMAL, config, rng))
    return _join([phrases.OPENING[case.lateral][0], *sentences])


def _join(sentences: Sequence[str]) -> str:
    return " ".join(text[0].upper() + text[1:] for text in sentences)


def _group(name: str) -> str:
    return next((group for group, names in _GROUPS.items() if name in names), "lungs")


def _pick(choices: Sequence[str], config: PhantomConfig, rng: np.random.Generator) -> str:
    return choices[int(rng.integers(min(config.paraphrases, len(choices))))]


def _by_template(config: PhantomConfig, rng: np.random.Generator) -> bool:
    # Without a template nothing is drawn: such reports are the same as before there was one.
    return config.templated > 0 and rng.random() < config.templated


def _order(config: PhantomConfig, rng: np.random.Generator) -> tuple[str, ...]:
    orders = [order for order, _ in _ORDERS]
    if _by_template(config, rng):
        return orders[0]
    return orders[int(rng.choice(len(orders), p=[p for _, p in _ORDERS]))]


def _normal(choices: Sequence[str], config: PhantomConfig, rng: np.random.Generator) -> str:
    if _by_template(config, rng):
        return choices[0]
    return _pick(choices, config, rng)


def _positive(case: Case, finding: Finding, config: PhantomConfig, rng: np.random.Generator) -> str:
    fields = _fields(finding)
    fields["noun"] = phrases.NOUN[finding.name].format(**fields)
    is_device = finding.name == "device"
    plain = phrases.DEVICE[finding.kind] if is_device else phrases.POSITIVE[finding.name]
    choices = plain
    if finding.uncertain:
        choices = phrases.UNCERTAIN
    elif finding.change and (finding.change != "unchanged" or rng.random() < 0.7):
        choices = phrases.CHANGE[finding.change]
    if choices is not plain and finding.name in phrases.MASS_NOUNS:
        fields["a"] = ""
    text = _pick(choices, config, rng).format(**fields)
    if finding.cause:
        tails = phrases.CAUSE_CERTAIN if finding.cause_certain else phrases.CAUSE_UNCERTAIN
        text = text.rstrip(".") + _pick(tails, config, rng).format(cause=finding.cause)
    text = _articles(text)
    return with_boxes(text, boxes_of(case, finding, config)) if config.boxes else text


def _fields(finding: Finding) -> dict[str, str]:
    plural = finding.side == "bilateral" and finding.name == "effusion"
    adjectives = phrases.ADJECTIVES.get(finding.name, ("", "", ""))
    side = finding.side
    lobe = f"{side} {finding.zone} lobe"
    kind = finding.kind
    if finding.name == "lesion":
        kind = "mass" if finding.severity == 3 else "nodule"
    if finding.name == "device" and side:
        side += " "
    bases = "at both lung bases" if side == "bilateral" else f"at the {side} lung base"
    return {
        "size": adjectives[finding.severity - 1],
        "adv": phrases.ADVERBS[finding.severity - 1],
        "side": side,
        "on": "bilaterally" if side == "bilateral" else f"on the {side.strip()}",
        "lobe": lobe,
        "inlobe": f"in the {lobe}",
        "atbase": bases,
        "kind": kind,
        "s": "s" if plural else "",
        "be": "are" if plural else "is",
        "have": "have" if plural else "has",
        "a": "" if plural else "a~",
    }


def _articles(text: str) -> str:
    """Turns each `a~` into the article its next word takes."""
    text = re.sub(r"a~(?=[aeiou])", "an ", text)
    return re.sub(r" +", " ", text.replace("a~", "a "))


def _negatives(
    case: Case, negated: Sequence[str], config: PhantomConfig, rng: np.random.Generator
) -> list[tuple[str, str]]:
    left = set(negated)
    out = []
    for gone in case.resolved:
        name = FINDINGS[gone.name][0]
        if name in left:
            side = f"{gone.side} " if gone.side in ("left", "right") else ""
            text = _pick(phrases.RESOLVED, config, rng)
            out.append((_group(name), text.format(thing=side + phrases.THING[gone.name])))
            left.discard(name)
    for together, (probability, *choices) in phrases.NEGATIVE_TOGETHER.items():
        often = probability + config.templated * (1 - probability)
        if left >= set(together) and rng.random() < often:
            out.append((_group(together[-1]), _normal(choices, config, rng)))
            left -= set(together)
    for name in negated:
        if name in left:
            out.append((_group(name), _normal(phrases.NEGATIVE[name], config, rng)))
    return out


SIDE, FAINT = 96, 0.2
"""Pixels of the film that boxes are read on; share of its greatest change that still counts."""


def boxes_of(case: Case, finding: Finding, config: PhantomConfig) -> list[Box]:
    """Find the boxes of a finding, one a side; none where nothing is drawn."""
    film = replace(config, size=SIDE, noise=0.0)
    # fluid lifts what lies above it, so it is there on both films
    others = tuple(f for f in case.findings if f.name == "effusion" != finding.name)
    with_it, without = (
        np.asarray(draw_frontal(replace(case, findings=f), film), dtype=np.int64)
        for f in ((*others, finding), others)
    )
    change = np.abs(with_it - without)
    mask = change > max(1.0, FAINT * change.max())
    left = np.arange(SIDE) < SIDE // 2
    halves = [mask & left, mask & ~left] if finding.side == "bilateral" else [mask]
    return [_around(half) for half in halves if half.any()]


def _around(mask: np.ndarray) -> Box:
    ys, xs = np.nonzero(mask)
    left, top = (math.floor(GRID * int(v.min()) / SIDE) for v in (xs, ys))
    right, bottom = (math.ceil(GRID * (int(v.max()) + 1) / SIDE) for v in (xs, ys))
    return left, top, right, bottom
