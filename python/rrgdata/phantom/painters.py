"""One painter for each finding that lies in or around the lungs, and for devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rrgdata.phantom.anatomy import (
    SIDE,
    Array,
    Scene,
    blob,
    cloud,
    ellipse,
    over,
    rib_height,
    sigmoid,
    stroke,
)
from rrgdata.phantom.case import Finding

DENSE = 0.68
METAL, STRIP = 0.95, 0.20
"""Brightness of generators, and of the contrast strips of tubes and lines."""


@dataclass(frozen=True)
class Brush:
    """Input of a painter.

    `visibility` is the finding's visibility (1 is plain), `vessels` the part of the image that is
    vessels.
    """

    scene: Scene
    finding: Finding
    visibility: float
    rng: np.random.Generator
    vessels: Array


def sides_of(finding: Finding) -> tuple[str, ...]:
    """The sides a finding is on: both where it is bilateral."""
    return ("right", "left") if finding.side == "bilateral" else (finding.side,)


def _effusion(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    for side in sides_of(finding):
        lateral = np.clip(np.abs(scene.x) - 0.35, 0, None)
        rise = (0.35 + 0.3 * finding.severity) * lateral**2
        level = scene.domes[side] + 0.10 - scene.fluid[side] - rise
        fluid = scene.cavity[side] * sigmoid(scene.y - level, 0.022)
        image = over(image, min(1.0, 1.2 * visibility) * fluid, DENSE + 0.03)
    return image


def _place(brush: Brush) -> tuple[float, float]:
    """Draws a point near the centre of the finding's lobe, in patient coordinates."""
    side, zone = brush.finding.side, brush.finding.zone
    cx = {"upper": 0.36, "middle": 0.38, "lower": 0.46}[zone] * SIDE[side]
    cy = {"upper": -0.42, "middle": 0.14, "lower": 0.36}[zone] - (0.03 if side == "left" else 0.0)
    return cx + brush.rng.uniform(-0.06, 0.06), cy + brush.rng.uniform(-0.05, 0.05)


def _consolidation(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    cx, cy = _place(brush)
    r = (0.0, 0.14, 0.19, 0.26)[finding.severity]
    shape = ellipse(scene.x, scene.y, (cx, cy), (r * 1.05, r), 0.05)
    if finding.zone == "upper":
        shape = shape * sigmoid(cy + 0.8 * r - scene.y, 0.012)
    elif finding.zone == "middle":
        shape = shape * sigmoid(scene.y - cy + 0.7 * r, 0.012)
    shape = shape * scene.lung[finding.side]
    image = over(image, min(1.0, 0.85 * visibility) * shape, DENSE)
    if finding.cause:
        image = _bronchograms(image, brush, (cx, cy, r), visibility * shape)
    return image


def _bronchograms(
    image: Array, brush: Brush, place: tuple[float, float, float], where: Array
) -> Array:
    """Air in the bronchi, dark inside a density; how the drawing says pneumonia."""
    scene = brush.scene
    (cx, cy, r), sign = place, SIDE[brush.finding.side]
    dark = np.zeros_like(image)
    for dy in (-0.6, 0.0, 0.6):
        line = [(cx - 0.8 * r * sign, cy), (cx, cy + 0.5 * dy * r), (cx + r * sign, cy + dy * r)]
        dark = np.maximum(dark, stroke(scene.x, scene.y, line, 0.014))
    return image - 0.24 * dark * where


def _opacity(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    cx, cy = _place(brush)
    r = (0.0, 0.12, 0.16, 0.21)[finding.severity]
    haze = blob(scene.x, scene.y, (cx, cy), (r, 0.9 * r))
    if finding.cause == "pneumonia":
        haze = haze * np.clip(0.8 + 0.6 * cloud(brush.rng, scene.size, 18), 0.0, 1.6)
    elif finding.cause == "atelectasis":
        haze = np.maximum(0.5 * haze, _plates(scene, cx, cy, 1.5 * r, finding.severity))
    mask = np.clip(0.6 * visibility * haze, 0, 1) * scene.lung[finding.side]
    return over(image, mask, DENSE - 0.08)


def _pneumonia(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    cx, cy = _place(brush)
    r = (0.0, 0.13, 0.18, 0.24)[finding.severity]
    patches = np.zeros_like(image)
    for _ in range(5):
        px, py = cx + brush.rng.uniform(-0.8, 0.8) * r, cy + brush.rng.uniform(-0.8, 0.8) * r
        patches = np.maximum(patches, blob(scene.x, scene.y, (px, py), (0.42 * r, 0.36 * r)))
    patches = patches * scene.lung[finding.side]
    image = over(image, min(1.0, 0.9 * visibility) * patches, DENSE)
    return _bronchograms(image, brush, (cx, cy, r), visibility * patches)


def _edema(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    both = scene.lung["left"] + scene.lung["right"]
    ax = np.abs(scene.x)
    wings = np.exp(-0.5 * (((ax - 0.26) / 0.20) ** 2 + ((scene.y - 0.02) / 0.30) ** 2))
    lines = np.clip(cloud(brush.rng, scene.size, 40), 0, None)
    kerley = np.clip(np.cos(2 * np.pi * scene.y / 0.055) - 0.4, 0, None)
    kerley = (
        kerley * np.exp(-0.5 * ((scene.outer - 0.05) / 0.05) ** 2) * sigmoid(scene.y - 0.15, 0.05)
    )
    mask = wings * (0.65 + 0.35 * lines) + 0.35 * kerley
    strength = visibility * (0.0, 0.55, 0.85, 1.15)[finding.severity]
    return over(image, np.clip(strength * mask, 0, 0.95) * both, DENSE - 0.04)


def _plates(scene: Scene, cx: float, cy: float, reach: float, count: int) -> Array:
    out = np.zeros_like(scene.x)
    for i in range(count):
        dy = 0.075 * (i - 0.5 * (count - 1))
        line = [(cx - reach, cy + dy + 0.04 * np.sign(cx)), (cx + reach, cy + dy - 0.02)]
        out = np.maximum(out, stroke(scene.x, scene.y, line, 0.015))
    return out


def _atelectasis(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    for side in sides_of(finding):
        cx = SIDE[side] * (0.45 + brush.rng.uniform(-0.03, 0.03))
        above = 0.11 + max(0.0, scene.fluid[side] - 0.12)
        cy = scene.domes[side] - above + brush.rng.uniform(-0.03, 0.02)
        plates = _plates(scene, cx, cy, 0.14 + 0.03 * finding.severity, finding.severity)
        mask = np.clip(1.05 * visibility, 0, 1) * plates * scene.lung[side]
        image = over(image, mask, DENSE + 0.02)
    return image


def _pneumothorax(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    side = finding.side
    gap = (0.0, 0.09, 0.15, 0.24)[finding.severity]
    low = sigmoid((-0.35, -0.10, 0.15, 0.6)[finding.severity] - scene.y, 0.10)
    near = np.minimum(scene.outer, 0.8 * scene.top)
    rim = sigmoid(gap * low + 0.02 * (low - 1) - near, 0.008) * scene.lung[side] * low
    image = image - rim * min(1.0, 1.2 * visibility) * (0.55 * brush.vessels + 0.15)
    edge = np.exp(-0.5 * ((near - gap * low) / 0.011) ** 2) * low * scene.lung[side]
    return image + 0.24 * visibility * edge * sigmoid(near - 0.02, 0.01)


def _lesion(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    cx, cy = _place(brush)
    r = (0.0, 0.05, 0.075, 0.13)[finding.severity]
    round_ = ellipse(scene.x, scene.y, (cx, cy), (r, r), 0.008)
    return over(
        image, min(1.0, 0.95 * visibility) * round_ * scene.lung[finding.side], DENSE + 0.04
    )


def _thickening(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    width = (0.0, 0.05, 0.075, 0.105)[finding.severity]
    wavy = width * (1.0 + 0.25 * np.sin(9.0 * scene.y + brush.rng.uniform(0, 6)))
    span = sigmoid(scene.y + 0.55, 0.06) * sigmoid(0.30 - scene.y, 0.06)
    band = sigmoid(wavy - scene.outer, 0.010) * span * scene.lung[finding.side]
    return over(image, min(1.0, 0.9 * visibility) * band, DENSE)


def _fracture(image: Array, brush: Brush) -> Array:
    scene, finding, visibility = brush.scene, brush.finding, brush.visibility
    sign = SIDE[finding.side]
    cx = 0.60 * sign
    number = float(brush.rng.integers(-1, 2))
    phase = scene.build.ribs
    cy = float(0.135 * (number - rib_height(cx, phase)))
    step = 0.025 + 0.012 * finding.severity
    x, y = scene.x, scene.y
    inner = [(cx - 0.11 * sign, cy - 0.03), (cx - 0.015 * sign, cy - 0.5 * step)]
    outer = [(cx + 0.015 * sign, cy + 0.5 * step), (cx + 0.10 * sign, cy + step + 0.03)]
    ends = np.maximum(stroke(x, y, inner, 0.022), stroke(x, y, outer, 0.022))
    gap = stroke(x, y, [(cx - 0.01 * sign, cy - 0.05), (cx + 0.01 * sign, cy + 0.05)], 0.011)
    return image + 0.30 * visibility * ends - 0.28 * visibility * gap


def _device(image: Array, brush: Brush) -> Array:
    """Draws the device `finding.kind` on its side; raises ValueError for an unknown kind."""
    scene, finding = brush.scene, brush.finding
    x, y = scene.x, scene.y
    sign = SIDE.get(finding.side, 1.0)
    plain = min(1.0, 1.3 * min(1.0, brush.visibility))
    bright = STRIP * plain
    if finding.kind == "endotracheal tube":
        return image + bright * stroke(x, y, [(0.0, -1.1), (0.01, -0.42)], 0.015)
    if finding.kind == "enteric tube":
        path = [
            (-0.02, -1.1),
            (0.02, -0.2),
            (0.04, 0.45),
            (0.16, scene.domes["left"] + 0.20),
            (0.34, scene.domes["left"] + 0.26),
        ]
        return image + bright * stroke(x, y, path, 0.012)
    if finding.kind == "central line":
        path = [
            (0.34 * sign, -1.1),
            (0.30 * sign, -0.80),
            (0.12 * sign, -0.62),
            (-0.09, -0.45),
            (-0.10, -0.08),
        ]
        return image + bright * stroke(x, y, path, 0.013)
    if finding.kind == "chest tube":
        path = [(1.0 * sign, 0.40), (0.72 * sign, 0.26), (0.50 * sign, -0.12), (0.36 * sign, -0.55)]
        return image + bright * stroke(x, y, path, 0.016)
    if finding.kind == "pacemaker":
        box = ellipse(x, y, (0.60 * sign, -0.50), (0.125, 0.10), 0.010)
        image = image + box * (METAL - image) * plain
        lead = [(0.52 * sign, -0.56), (0.30 * sign, -0.66), (-0.02, -0.48), (-0.09, -0.10)]
        tips = [(-0.09, 0.24), (0.05, 0.42), (0.27, 0.40)]
        image = image + bright * stroke(x, y, [*lead, tips[0]], 0.012)
        return image + bright * stroke(x, y, [lead[-1], *tips[1:]], 0.012)
    raise ValueError(f"device kind {finding.kind!r} is unknown; wanted a kind of case.DEVICES")


PAINTERS: dict[str, Callable[[Array, Brush], Array]] = {
    "effusion": _effusion,
    "consolidation": _consolidation,
    "opacity": _opacity,
    "pneumonia": _pneumonia,
    "edema": _edema,
    "atelectasis": _atelectasis,
    "lesion": _lesion,
    "thickening": _thickening,
    "fracture": _fracture,
    "pneumothorax": _pneumothorax,
    "device": _device,
}
