"""Draws a case's frontal view: the healthy chest, then each finding, then the exposure."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from PIL import Image

from rrgdata.phantom.anatomy import (
    Array,
    Build,
    Scene,
    build_scene,
    cloud,
    draw_healthy,
)
from rrgdata.phantom.case import Case, Finding
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.devices import draw_device
from rrgdata.phantom.painters import PAINTERS, Brush, sides_of


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
        if finding.name == "device":
            image = draw_device(image, scene, finding, min(1.0, brush.visibility))
        elif finding.name in PAINTERS:
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
