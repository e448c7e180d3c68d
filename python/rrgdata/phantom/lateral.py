"""The lateral view: sternum to the left of the image, spine to the right.

Drawn on it: heart size, effusions, lobar densities, nodules, pacemakers. What hides behind other
structures on a real lateral film (pneumothorax, lines, ribs) is not drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from rrgdata.phantom.anatomy import Array, Build, blob, cloud, ellipse, grid, sigmoid, stroke
from rrgdata.phantom.case import Case, Finding
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.draw import expose

LOBES = {"upper": (-0.12, -0.38), "middle": (-0.30, 0.16), "lower": (0.32, 0.22)}
DENSITY = {"consolidation": 0.9, "pneumonia": 0.8, "opacity": 0.5, "lesion": 1.0}


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
    image = image + heart * inside * np.clip(0.62 - image, 0.0, None)
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
        return image + min(1.0, 1.2 * visibility) * mask * np.clip(0.70 - image, 0, None)
    if finding.name in DENSITY and finding.zone:
        cx, cy = LOBES[finding.zone]
        r = (0.0, 0.05, 0.07, 0.12)[finding.severity]
        if finding.name == "lesion":
            shape = ellipse(x, y, (cx, cy), (r, r), 0.01)
        else:
            shape = blob(x, y, (cx, cy), (0.08 + r, 0.08 + r))
        mask = np.clip(DENSITY[finding.name] * visibility * shape, 0, 1) * lung
        return image + mask * np.clip(0.80 - image, 0, None)
    if finding.name == "edema":
        haze = blob(x, y, (0.05, -0.05), (0.3, 0.35))
        return image + 0.06 * finding.severity * visibility * lung * haze
    if finding.name == "device" and finding.kind == "pacemaker":
        box = ellipse(x, y, (-0.56, -0.45), (0.05, 0.12), 0.012)
        lead = stroke(x, y, [(-0.5, -0.5), (-0.05, -0.4), (-0.1, 0.2), (-0.3, 0.4)], 0.014)
        return np.maximum(image, 0.95 * box) + 0.2 * lead
    return image
