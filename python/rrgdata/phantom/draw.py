"""Draws a case's views: the healthy chest, then each finding, then the exposure.

On the lateral view, the sternum to the left and the spine to the right, are heart size, effusions,
lobar densities, nodules and pacemakers. What hides behind other structures on a real lateral film
(pneumothorax, lines, ribs) is not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
from PIL import Image

from rrgdata.phantom.anatomy import (
    Array,
    Build,
    Scene,
    blob,
    build_scene,
    cloud,
    draw_healthy,
    ellipse,
    grid,
    over,
    sigmoid,
    stroke,
)
from rrgdata.phantom.case import Case, Finding
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.painters import PAINTERS, Brush, sides_of

LOBES = {"upper": (-0.12, -0.38), "middle": (-0.30, 0.16), "lower": (0.32, 0.22)}
DENSITY = {"consolidation": 0.9, "pneumonia": 0.8, "opacity": 0.5, "lesion": 1.0}


def draw_frontal(case: Case, config: PhantomConfig, *, prior: bool = False) -> Image.Image:
    """The frontal radiograph of a case, or its prior; mode "L", `config.size` square.

    The body, and each finding's place and visibility, come from generators of their own: the same
    case with one finding removed differs by that finding alone (fluid lifts what lies above it).
    """
    findings = case.earlier if prior else case.findings
    if findings is None:
        raise ValueError("this case has no prior study; wanted one with earlier findings")
    build = Build.draw(np.random.default_rng([*case.seed, 10]))
    visibility = {f.name: _visibility(f, case, config) for f in findings}
    scene = _scene(config, build, findings, visibility)
    image, vessels = draw_healthy(scene, np.random.default_rng([*case.seed, 11]))
    for finding in findings:
        rng = np.random.default_rng([*case.seed, 12, crc32(finding.name.encode())])
        brush = Brush(scene, finding, visibility[finding.name], rng, vessels)
        if finding.name in PAINTERS:
            image = PAINTERS[finding.name](image, brush)
    return expose(image, build, config, np.random.default_rng([*case.seed, 13 + prior]))


def expose(
    image: Array, build: Build, config: PhantomConfig, rng: np.random.Generator
) -> Image.Image:
    """Adds exposure and, scaled by `noise`, scatter and grain; quantises to 8 bits."""
    size = config.size
    haze = 0.012 * config.noise * cloud(rng, size, 3)
    grain = rng.standard_normal((size, size), dtype=np.float32) * (0.02 * config.noise)
    film = 1.18 * (image + haze + build.exposure) + grain
    return Image.fromarray((np.clip(film, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8))


def _visibility(finding: Finding, case: Case, config: PhantomConfig) -> float:
    """How far a finding stands out: graded by luck, lower where the report is uncertain."""
    rng = np.random.default_rng([*case.seed, 14, crc32(finding.name.encode())])
    visibility = rng.uniform(0.55, 1.0)
    return float(config.contrast * visibility * (0.5 if finding.uncertain else 1.0))


def _scene(
    config: PhantomConfig, build: Build, findings: Sequence[Finding], visibility: dict[str, float]
) -> Scene:
    heart = mediastinum = 1.0
    raised: dict[str, float] = {}
    fluid: dict[str, float] = {}
    for finding in findings:
        visible = 1.25 * min(1.0, visibility[finding.name]) ** 0.7
        if finding.name == "cardiomegaly":
            heart = 1.0 + visible * (0.0, 0.20, 0.34, 0.48)[finding.severity]
        elif finding.name == "mediastinum":
            mediastinum = 1.0 + visible * (0.0, 0.45, 0.75, 1.1)[finding.severity]
        elif finding.name == "effusion":
            for side in sides_of(finding):
                fluid[side] = (0.0, 0.10, 0.28, 0.62)[finding.severity] * build.fluid
        elif finding.name == "atelectasis":
            for side in sides_of(finding):
                raised[side] = visible * (0.0, 0.02, 0.05, 0.09)[finding.severity]
    return build_scene(
        config.size,
        build,
        heart_scale=heart,
        mediastinum_scale=mediastinum,
        raised=raised,
        fluid=fluid,
    )


def draw_lateral(case: Case, config: PhantomConfig) -> Image.Image:
    """The lateral radiograph of a case; mode "L", `config.size` square."""
    build = Build.draw(np.random.default_rng([*case.seed, 10]))
    rng = np.random.default_rng([*case.seed, 20])
    x, y = grid(config.size, build)
    up = np.clip((0.1 - y) / (0.1 - build.apex), 0.0, 1.0)
    front = -0.66 + 0.46 * up**2.2
    back = 0.66 - 0.02 * y - 0.24 * up**3
    skin = np.clip(-0.85 - y, -0.5, 0.0)
    body = sigmoid(x - front + 0.15 + 0.2 * skin, 0.02) * sigmoid(back + 0.28 - x, 0.02)
    floor = build.dome + 0.10 * (x - 0.05) + 0.75 * np.clip(x - 0.05, 0, None) ** 2
    inside = sigmoid(x - front, 0.02) * sigmoid(back - x, 0.02) * sigmoid(y - build.apex, 0.03)
    lung = inside * sigmoid(floor - y, 0.014)
    image = body * (0.64 + 0.06 * sigmoid(y - build.dome, 0.08)) * (1 - lung) + lung * 0.31
    image = image + 0.018 * lung * cloud(rng, config.size, 26)
    column = np.exp(-0.5 * ((x - back + 0.12) / 0.10) ** 2) * (1 - 0.5 * sigmoid(y - 0.1, 0.3))
    image = image + body * column * (0.13 + 0.06 * np.cos(2 * np.pi * y * 4.5))
    for rib in np.arange(-0.7, 0.7, 0.16):
        line = [(0.6, rib), (0.1, rib + 0.10), (-0.45, rib + 0.26)]
        image = image + 0.035 * lung * stroke(x, y, line, 0.020)
    image = image + 0.08 * stroke(x, y, [(-0.50, -0.6), (-0.74, 0.4)], 0.03)
    image = image - 0.12 * stroke(x, y, [(-0.02, -1.0), (0.06, -0.25)], 0.035)
    image = image + 0.12 * lung * blob(x, y, (0.05, -0.12), (0.09, 0.11))
    arch = stroke(
        x, y, [(-0.25, -0.10), (-0.12, -0.36), (0.14, -0.38), (0.28, -0.15), (0.34, 0.4)], 0.055
    )
    image = image + 0.10 * lung * arch
    grow = 1.0 + next((0.13 * f.severity for f in case.findings if f.name == "cardiomegaly"), 0.0)
    heart = ellipse(
        x + 0.30 * (y - build.dome),
        y,
        (-0.33 + 0.14 * (grow - 1), build.dome - 0.06),
        (0.36 * grow, 0.34 * grow),
        0.02,
    )
    image = over(image, heart * inside, 0.62)
    for finding in case.findings:
        image = _draw(image, _Thorax(x, y, lung, inside, floor), finding, config)
    return expose(image.astype(np.float32), build, config, rng)


class _Thorax(NamedTuple):
    """Where findings lie on the lateral view; arrays over its pixels."""

    x: Array
    y: Array
    lung: Array
    """The aerated field, 0 to 1."""
    inside: Array
    """The chest between its walls, 0 to 1."""
    floor: Array
    """Height of the diaphragm."""


def _draw(image: Array, thorax: _Thorax, finding: Finding, config: PhantomConfig) -> Array:
    x, y, lung, inside, floor = thorax
    visibility = config.contrast * (0.4 if finding.uncertain else 0.8)
    if finding.name == "effusion":
        depth = (0.0, 0.14, 0.30, 0.55)[finding.severity]
        level = np.max(floor * (lung > 0.5)) - depth - 0.5 * np.clip(x - 0.3, 0, None) ** 2
        mask = inside * sigmoid(y - level, 0.02)
        return over(image, min(1.0, 1.2 * visibility) * mask, 0.70)
    if finding.name in DENSITY and finding.zone:
        cx, cy = LOBES[finding.zone]
        r = (0.0, 0.05, 0.07, 0.12)[finding.severity]
        if finding.name == "lesion":
            shape = ellipse(x, y, (cx, cy), (r, r), 0.01)
        else:
            shape = blob(x, y, (cx, cy), (0.08 + r, 0.08 + r))
        mask = np.clip(DENSITY[finding.name] * visibility * shape, 0, 1) * lung
        return over(image, mask, 0.80)
    if finding.name == "edema":
        haze = blob(x, y, (0.05, -0.05), (0.3, 0.35))
        return image + 0.06 * finding.severity * visibility * lung * haze
    if finding.name == "device" and finding.kind == "pacemaker":
        box = ellipse(x, y, (-0.56, -0.45), (0.05, 0.12), 0.012)
        lead = stroke(x, y, [(-0.5, -0.5), (-0.05, -0.4), (-0.1, 0.2), (-0.3, 0.4)], 0.014)
        return np.maximum(image, 0.95 * box) + 0.2 * lead
    return image
