"""The lateral view: sternum to the left of the image, spine to the right.

Drawn on it: heart size, effusions, lobar densities, nodules, pacemakers. What hides behind other
structures on a real lateral film (pneumothorax, lines, ribs) is not drawn.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from rrgtrain.data.phantom.anatomy import Build, blob, cloud, ellipse, grid, sigmoid, stroke
from rrgtrain.data.phantom.case import Case, Finding
from rrgtrain.data.phantom.config import PhantomConfig
from rrgtrain.data.phantom.draw import expose

LOBES = {"upper": (-0.12, -0.38), "middle": (-0.30, 0.16), "lower": (0.32, 0.22)}
DENSITY = {"consolidation": 0.55, "pneumonia": 0.5, "opacity": 0.3, "lesion": 0.6}


def draw_lateral(case: Case, config: PhantomConfig) -> Image.Image:
    """The lateral radiograph of a case; mode "L", `config.size` square."""
    build = Build.draw(np.random.default_rng([*case.seed, 10]))
    rng = np.random.default_rng([*case.seed, 20])
    x, y = grid(config.size, build)
    front = -0.62 - 0.12 * np.clip(y + 0.2, -0.6, 0.6)
    back = 0.62 + 0.10 * np.sin(1.6 * y)
    body = sigmoid(x - front + 0.16, 0.02) * sigmoid(back + 0.26 - x, 0.02)
    floor = build.dome + 0.05 + 0.22 * (x - 0.05) + 0.45 * (x - 0.05) ** 2
    lung = (sigmoid(x - front, 0.02) * sigmoid(back - x, 0.02)
            * sigmoid(floor - y, 0.014) * sigmoid(y - build.apex, 0.03))
    image = body * 0.66 * (1 - lung) + lung * 0.30
    image = image + 0.02 * lung * cloud(rng, config.size, 26)
    spine = np.exp(-0.5 * ((x - back + 0.10) / 0.09) ** 2)
    image = image + body * spine * (0.16 + 0.05 * np.cos(2 * np.pi * y * 4.5))
    image = image + 0.12 * stroke(x, y, [(-0.56, -0.6), (-0.66, 0.3)], 0.03)
    image = image - 0.12 * stroke(x, y, [(-0.02, -1.0), (0.06, -0.25)], 0.035)
    image = image + 0.10 * lung * blob(x, y, 0.05, -0.12, 0.12, 0.12)
    grow = 1.0 + next((0.14 * f.severity for f in case.findings if f.name == "cardiomegaly"), 0.0)
    heart = ellipse(x, y, -0.22 + 0.12 * (grow - 1), build.dome - 0.14, 0.32 * grow,
                    0.27 * grow, 0.02)
    image = np.maximum(image, heart * lung * 0.68 + (1 - lung) * image)
    for finding in case.findings:
        image = _draw(image, x, y, lung, floor, finding, config)
    return expose(image.astype(np.float32), build, config, rng)


def _draw(
    image: np.ndarray, x: np.ndarray, y: np.ndarray, lung: np.ndarray, floor: np.ndarray,
    finding: Finding, config: PhantomConfig,
) -> np.ndarray:
    seen = config.contrast * (0.4 if finding.uncertain else 0.8)
    if finding.name == "effusion":
        depth = (0.0, 0.10, 0.28, 0.55)[finding.severity]
        level = floor - depth * sigmoid(x - 0.15, 0.12)
        mask = lung * sigmoid(y - level, 0.02) * sigmoid(x + 0.1, 0.1)
        return image + min(1.0, 1.1 * seen) * mask * np.clip(0.70 - image, 0, None)
    if finding.name in DENSITY and finding.zone:
        cx, cy = LOBES[finding.zone]
        r = (0.0, 0.05, 0.08, 0.13)[finding.severity]
        r = r if finding.name == "lesion" else 0.1 + r
        return image + DENSITY[finding.name] * seen * lung * blob(x, y, cx, cy, r, r)
    if finding.name == "edema":
        return image + 0.06 * finding.severity * seen * lung * blob(x, y, 0.05, -0.05, 0.3, 0.35)
    if finding.name == "device" and finding.kind == "pacemaker":
        box = ellipse(x, y, -0.56, -0.45, 0.05, 0.12, 0.012)
        lead = stroke(x, y, [(-0.5, -0.5), (-0.05, -0.4), (-0.1, 0.2), (-0.3, 0.4)], 0.014)
        return np.maximum(image, 0.95 * box) + 0.2 * lead
    return image
