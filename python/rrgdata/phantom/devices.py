"""Tubes, lines and generators, as bright as metal and contrast strips are."""

from __future__ import annotations

from rrgdata.phantom.anatomy import SIDE, Array, Scene, ellipse, stroke
from rrgdata.phantom.case import Finding

METAL = 0.95
STRIP = 0.20


def draw_device(image: Array, scene: Scene, finding: Finding, visibility: float) -> Array:
    """Draws the device `finding.kind` on its side; raises ValueError for an unknown kind."""
    x, y = scene.x, scene.y
    sign = SIDE.get(finding.side, 1.0)
    bright = STRIP * min(1.0, 1.3 * visibility)
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
        image = image + box * (METAL - image) * min(1.0, 1.3 * visibility)
        lead = [(0.52 * sign, -0.56), (0.30 * sign, -0.66), (-0.02, -0.48), (-0.09, -0.10)]
        tips = [(-0.09, 0.24), (0.05, 0.42), (0.27, 0.40)]
        image = image + bright * stroke(x, y, [*lead, tips[0]], 0.012)
        return image + bright * stroke(x, y, [lead[-1], *tips[1:]], 0.012)
    raise ValueError(f"device kind {finding.kind!r} is unknown; wanted a kind of case.DEVICES")
