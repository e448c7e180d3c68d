"""Draws a case: the healthy chest, then each finding where the report says it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
from PIL import Image

from rrgtrain.data.phantom.anatomy import (
    SIDE,
    Array,
    Build,
    Scene,
    blob,
    build_scene,
    cloud,
    draw_healthy,
    ellipse,
    rib_height,
    sigmoid,
    stroke,
)
from rrgtrain.data.phantom.case import Case, Finding
from rrgtrain.data.phantom.config import PhantomConfig
from rrgtrain.data.phantom.devices import draw_device

DENSE = 0.68
Painter = Callable[[Array, Scene, Finding, float, np.random.Generator], Array]


def draw_frontal(case: Case, config: PhantomConfig, *, prior: bool = False) -> Image.Image:
    """The frontal radiograph of a case, or its prior; mode "L", `config.size` square.

    The body, and each finding's place and visibility, come from generators of their own: the same
    case with one finding removed differs by that finding alone.
    """
    findings = case.earlier if prior else case.findings
    if findings is None:
        raise ValueError("this case has no prior study; wanted one with earlier findings")
    build = Build.draw(np.random.default_rng([*case.seed, 10]))
    seen = {f.name: _visibility(f, case, config) for f in findings}
    scene = _scene(config, build, findings, seen)
    image, vessels = draw_healthy(scene, np.random.default_rng([*case.seed, 11]))
    for finding in findings:
        rng = np.random.default_rng([*case.seed, 12, crc32(finding.name.encode())])
        if finding.name == "device":
            image = draw_device(image, scene, finding, min(1.0, seen["device"]))
        elif finding.name == "pneumothorax":
            image = _pneumothorax(image, scene, finding, seen[finding.name], vessels)
        elif finding.name in PAINTERS:
            image = PAINTERS[finding.name](image, scene, finding, seen[finding.name], rng)
    return expose(image, build, config, np.random.default_rng([*case.seed, 13 + prior]))


def expose(
    image: Array, build: Build, config: PhantomConfig, rng: np.random.Generator
) -> Image.Image:
    """Adds exposure, scatter and grain, and quantises to 8 bits."""
    size = config.size
    haze = 0.012 * cloud(rng, size, 3)
    grain = rng.standard_normal((size, size), dtype=np.float32) * (0.02 * config.noise)
    film = 1.18 * (image + haze + build.exposure) + grain
    return Image.fromarray((np.clip(film, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8))


def _visibility(finding: Finding, case: Case, config: PhantomConfig) -> float:
    """How far a finding stands out: graded by luck, lower where the report is uncertain."""
    rng = np.random.default_rng([*case.seed, 14, crc32(finding.name.encode())])
    seen = rng.uniform(0.55, 1.0)
    return float(config.contrast * seen * (0.5 if finding.uncertain else 1.0))


def _scene(
    config: PhantomConfig, build: Build, findings: Sequence[Finding], seen: dict[str, float]
) -> Scene:
    heart = mediastinum = 1.0
    raised: dict[str, float] = {}
    for finding in findings:
        visible = min(1.25, seen[finding.name] + 0.2)
        if finding.name == "cardiomegaly":
            heart = 1.0 + visible * (0.0, 0.20, 0.34, 0.48)[finding.severity]
        elif finding.name == "mediastinum":
            mediastinum = 1.0 + visible * (0.0, 0.45, 0.75, 1.1)[finding.severity]
        elif finding.name == "atelectasis":
            for side in _sides(finding):
                raised[side] = visible * (0.0, 0.02, 0.05, 0.09)[finding.severity]
    return build_scene(config.size, build, heart_scale=heart, mediastinum_scale=mediastinum,
                       raised=raised)


def _sides(finding: Finding) -> tuple[str, ...]:
    return ("right", "left") if finding.side == "bilateral" else (finding.side,)


def _toward(image: Array, mask: Array, density: float) -> Array:
    """Moves the image towards `density` where it is less dense; never makes it more lucent."""
    return image + mask * np.clip(density - image, 0.0, None)


def _effusion(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    for side in _sides(finding):
        depth = (0.0, 0.10, 0.28, 0.62)[finding.severity] * rng.uniform(0.85, 1.15)
        lateral = np.clip(np.abs(scene.x) - 0.35, 0, None)
        level = scene.domes[side] + 0.10 - depth - (0.35 + 0.3 * finding.severity) * lateral**2
        fluid = scene.cavity[side] * sigmoid(scene.y - level, 0.022)
        image = _toward(image, min(1.0, 0.25 + 0.85 * seen) * fluid, DENSE + 0.03)
    return image


def lobe_centre(side: str, zone: str) -> tuple[float, float]:
    """Centre of a lobe on the frontal view, in patient coordinates."""
    x = {"upper": 0.36, "middle": 0.38, "lower": 0.46}[zone]
    y = {"upper": -0.42, "middle": 0.14, "lower": 0.36}[zone]
    return x * SIDE[side], y - (0.03 if side == "left" else 0.0)


def _place(finding: Finding, rng: np.random.Generator) -> tuple[float, float]:
    cx, cy = lobe_centre(finding.side, finding.zone)
    return cx + rng.uniform(-0.06, 0.06), cy + rng.uniform(-0.05, 0.05)


def _consolidation(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    cx, cy = _place(finding, rng)
    r = (0.0, 0.14, 0.19, 0.26)[finding.severity]
    shape = ellipse(scene.x, scene.y, cx, cy, r * 1.05, r, 0.05)
    if finding.zone == "upper":
        shape = shape * sigmoid(cy + 0.8 * r - scene.y, 0.012)
    elif finding.zone == "middle":
        shape = shape * sigmoid(scene.y - cy + 0.7 * r, 0.012)
    shape = shape * scene.lung[finding.side]
    image = _toward(image, min(1.0, 0.85 * seen) * shape, DENSE)
    return _bronchograms(image, scene, finding, (cx, cy, r), seen * shape) if finding.cause else image


def _bronchograms(
    image: Array, scene: Scene, finding: Finding, place: tuple[float, float, float], where: Array
) -> Array:
    """Air in the bronchi, dark inside a density; how the drawing says pneumonia."""
    (cx, cy, r), sign = place, SIDE[finding.side]
    dark = np.zeros_like(image)
    for dy in (-0.6, 0.0, 0.6):
        line = [(cx - 0.8 * r * sign, cy), (cx, cy + 0.5 * dy * r), (cx + r * sign, cy + dy * r)]
        dark = np.maximum(dark, stroke(scene.x, scene.y, line, 0.014))
    return image - 0.24 * dark * where


def _opacity(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    cx, cy = _place(finding, rng)
    r = (0.0, 0.12, 0.16, 0.21)[finding.severity]
    haze = blob(scene.x, scene.y, cx, cy, r, 0.9 * r)
    if finding.cause == "pneumonia":
        haze = haze * np.clip(0.8 + 0.6 * cloud(rng, scene.size, 18), 0.0, 1.6)
    elif finding.cause == "atelectasis":
        haze = np.maximum(0.5 * haze, _plates(scene, cx, cy, 1.5 * r, finding.severity))
    mask = np.clip(0.6 * seen * haze, 0, 1) * scene.lung[finding.side]
    return _toward(image, mask, DENSE - 0.08)


def _pneumonia(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    cx, cy = _place(finding, rng)
    r = (0.0, 0.13, 0.18, 0.24)[finding.severity]
    patches = np.zeros_like(image)
    for _ in range(5):
        px, py = cx + rng.uniform(-0.8, 0.8) * r, cy + rng.uniform(-0.8, 0.8) * r
        patches = np.maximum(patches, blob(scene.x, scene.y, px, py, 0.42 * r, 0.36 * r))
    patches = patches * scene.lung[finding.side]
    image = _toward(image, min(1.0, 0.9 * seen) * patches, DENSE)
    return _bronchograms(image, scene, finding, (cx, cy, r), seen * patches)


def _edema(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    both = scene.lung["left"] + scene.lung["right"]
    ax = np.abs(scene.x)
    wings = np.exp(-0.5 * (((ax - 0.26) / 0.20) ** 2 + ((scene.y - 0.02) / 0.30) ** 2))
    lines = np.clip(cloud(rng, scene.size, 40), 0, None)
    kerley = np.clip(np.cos(2 * np.pi * scene.y / 0.055) - 0.4, 0, None)
    kerley = kerley * np.exp(-0.5 * ((scene.outer - 0.05) / 0.05) ** 2) * sigmoid(
        scene.y - 0.15, 0.05)
    mask = wings * (0.65 + 0.35 * lines) + 0.35 * kerley
    strength = seen * (0.0, 0.55, 0.85, 1.15)[finding.severity]
    return _toward(image, np.clip(strength * mask, 0, 0.95) * both, DENSE - 0.04)


def _plates(scene: Scene, cx: float, cy: float, reach: float, count: int) -> Array:
    out = np.zeros_like(scene.x)
    for i in range(count):
        dy = 0.075 * (i - 0.5 * (count - 1))
        line = [(cx - reach, cy + dy + 0.04 * np.sign(cx)), (cx + reach, cy + dy - 0.02)]
        out = np.maximum(out, stroke(scene.x, scene.y, line, 0.015))
    return out


def _atelectasis(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    for side in _sides(finding):
        cx = SIDE[side] * (0.45 + rng.uniform(-0.03, 0.03))
        cy = scene.domes[side] - 0.11 + rng.uniform(-0.03, 0.02)
        plates = _plates(scene, cx, cy, 0.14 + 0.03 * finding.severity, finding.severity)
        mask = np.clip(1.05 * seen, 0, 1) * plates * scene.lung[side]
        image = _toward(image, mask, DENSE + 0.02)
    return image


def _pneumothorax(
    image: Array, scene: Scene, finding: Finding, seen: float, vessels: Array
) -> Array:
    side = finding.side
    gap = (0.0, 0.09, 0.15, 0.24)[finding.severity]
    low = sigmoid((-0.35, -0.10, 0.15, 0.6)[finding.severity] - scene.y, 0.10)
    near = np.minimum(scene.outer, 0.8 * scene.top)
    rim = sigmoid(gap * low + 0.02 * (low - 1) - near, 0.008) * scene.lung[side] * low
    image = image - rim * (0.55 * vessels + 0.13 * min(1.3, seen + 0.15))
    edge = np.exp(-0.5 * ((near - gap * low) / 0.011) ** 2) * low * scene.lung[side]
    return image + 0.24 * seen * edge * sigmoid(near - 0.02, 0.01)


def _lesion(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    cx, cy = _place(finding, rng)
    r = (0.0, 0.05, 0.075, 0.13)[finding.severity]
    round_ = ellipse(scene.x, scene.y, cx, cy, r, r, 0.008)
    return _toward(image, min(1.0, 0.95 * seen) * round_ * scene.lung[finding.side], DENSE + 0.04)


def _thickening(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    width = (0.0, 0.05, 0.075, 0.105)[finding.severity]
    wavy = width * (1.0 + 0.25 * np.sin(9.0 * scene.y + rng.uniform(0, 6)))
    span = sigmoid(scene.y + 0.55, 0.06) * sigmoid(0.30 - scene.y, 0.06)
    band = sigmoid(wavy - scene.outer, 0.010) * span * scene.lung[finding.side]
    return _toward(image, min(1.0, 0.9 * seen) * band, DENSE)


def _fracture(
    image: Array, scene: Scene, finding: Finding, seen: float, rng: np.random.Generator
) -> Array:
    sign = SIDE[finding.side]
    cx = 0.60 * sign
    number = float(rng.integers(-1, 2))
    phase = scene.build.ribs
    cy = float(0.135 * (number - rib_height(cx, phase)))
    step = 0.025 + 0.012 * finding.severity
    inner = [(cx - 0.11 * sign, cy - 0.03), (cx - 0.015 * sign, cy - 0.5 * step)]
    outer = [(cx + 0.015 * sign, cy + 0.5 * step), (cx + 0.10 * sign, cy + step + 0.03)]
    ends = np.maximum(stroke(scene.x, scene.y, inner, 0.022), stroke(scene.x, scene.y, outer, 0.022))
    gap = stroke(scene.x, scene.y, [(cx - 0.01 * sign, cy - 0.05), (cx + 0.01 * sign, cy + 0.05)],
                 0.011)
    return image + 0.30 * seen * ends - 0.28 * seen * gap


PAINTERS: dict[str, Painter] = {
    "effusion": _effusion, "consolidation": _consolidation, "opacity": _opacity,
    "pneumonia": _pneumonia, "edema": _edema, "atelectasis": _atelectasis, "lesion": _lesion,
    "thickening": _thickening, "fracture": _fracture,
}
