"""The chest itself: coordinates, silhouettes and the healthy frontal radiograph.

Coordinates run over the square image: x from -1 (the patient's right) to 1, y from -1 (neck) to 1.
Intensities are in [0, 1], brighter where more is absorbed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from PIL import Image

Array = np.ndarray
Point = tuple[float, float]
SIDE = {"right": -1.0, "left": 1.0}


def sigmoid(x: Array, soft: float) -> Array:
    """0 to 1 over a transition of width about 4 * soft."""
    return 1.0 / (1.0 + np.exp(np.clip(-x / soft, -40.0, 40.0)))


def blob(x: Array, y: Array, centre: Point, radii: Point) -> Array:
    """Gaussian bump of height 1; `radii` are its standard deviations along x and y."""
    (cx, cy), (rx, ry) = centre, radii
    return np.exp(-0.5 * (((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2))


def ellipse(x: Array, y: Array, centre: Point, radii: Point, soft: float) -> Array:
    """Soft-edged ellipse of height 1; `soft` is the width of its edge in image units."""
    (cx, cy), (rx, ry) = centre, radii
    r = np.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 + 1e-9)
    return sigmoid((1.0 - r) * min(rx, ry), soft)


def stroke(x: Array, y: Array, points: list[Point], width: float) -> Array:
    """Line through `points`, of Gaussian cross-section with standard deviation `width`."""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    reach = 4.0 * width
    near = (
        (x > min(xs) - reach)
        & (x < max(xs) + reach)
        & (y > min(ys) - reach)
        & (y < max(ys) + reach)
    )
    px, py = x[near], y[near]
    nearest = np.full(px.shape, np.inf, dtype=x.dtype)
    for (ax, ay), (bx, by) in pairwise(points):
        dx, dy = bx - ax, by - ay
        t = np.clip(((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy + 1e-12), 0.0, 1.0)
        np.minimum(nearest, (px - ax - t * dx) ** 2 + (py - ay - t * dy) ** 2, out=nearest)
    out = np.zeros_like(x)
    out[near] = np.exp(-0.5 * nearest / width**2)
    return out


def cloud(rng: np.random.Generator, size: int, cells: int) -> Array:
    """Smooth noise of unit variance whose lumps are 2 / cells wide; `[size, size]` float32."""
    grid = rng.standard_normal((cells + 2, cells + 2)).astype(np.float32)
    image = Image.fromarray(grid).resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(image) / 0.75


@dataclass(frozen=True)
class Build:
    """A patient's proportions: drawn from the seed alone, so a prior shows the same body."""

    shift: tuple[float, float]
    scale: tuple[float, float]
    tilt: float
    apex: float
    dome: float
    heart: float
    ribs: float
    exposure: float
    vessels: float
    fluid: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Build:
        """Draws a body; ranges are by eye."""
        u = rng.uniform
        return cls(
            shift=(u(-0.05, 0.05), u(-0.05, 0.05)),
            scale=(u(0.94, 1.06), u(0.94, 1.06)),
            tilt=u(-0.05, 0.05),
            apex=u(-0.86, -0.78),
            dome=u(0.4, 0.52),
            heart=u(0.91, 1.09),
            ribs=u(0.0, 1.0),
            exposure=u(-0.04, 0.04),
            vessels=u(0.8, 1.2),
            fluid=u(0.85, 1.15),
        )


@dataclass
class Scene:
    """The pixel grid of one patient and the shapes findings are placed by.

    `lung[side]` is the aerated field (0..1), `cavity[side]` the whole half of the chest with the
    recess behind the diaphragm, `outer[side]` the horizontal distance to the inside of the chest
    wall, `top` the distance below the apex, `domes[side]` the height of a diaphragm and
    `fluid[side]` how far an effusion rises above its recess (0 without one).
    """

    size: int
    x: Array
    y: Array
    build: Build
    lung: dict[str, Array]
    cavity: dict[str, Array]
    outer: Array
    top: Array
    heart: Array
    mediastinum: Array
    domes: dict[str, float]
    fluid: dict[str, float]


def grid(size: int, build: Build) -> tuple[Array, Array]:
    """Patient coordinates of every pixel centre, `[size, size]` float32 each."""
    axis = ((np.arange(size, dtype=np.float32) + 0.5) / size) * 2.0 - 1.0
    px, py = np.meshgrid(axis, axis)
    c, s = np.cos(build.tilt), np.sin(build.tilt)
    x = ((c * px + s * py) - build.shift[0]) / build.scale[0]
    y = ((-s * px + c * py) - build.shift[1]) / build.scale[1]
    return x.astype(np.float32), y.astype(np.float32)


def build_scene(
    size: int,
    build: Build,
    *,
    heart_scale: float,
    mediastinum_scale: float,
    raised: dict[str, float],
    fluid: dict[str, float],
) -> Scene:
    """Places lungs, heart and mediastinum; `raised` lifts a side's dome (volume loss)."""
    x, y = grid(size, build)
    ax = np.abs(x)
    base = build.dome + 0.28
    up = np.clip((base - y) / (base - build.apex), 0.0, 1.0)
    wall = 0.40 + 0.41 * np.sqrt(1.0 - up**2.4)
    outer = wall - ax
    top = y - (
        build.apex + 1.0 * np.clip(ax - 0.31, 0, None) ** 2 + 3.5 * np.clip(0.31 - ax, 0, None) ** 2
    )
    inside = sigmoid(outer, 0.012) * sigmoid(top, 0.014)
    inner = sigmoid(ax - 0.10 - 0.05 * np.clip(y + 0.2, 0, None), 0.015)
    lung, cavity, domes = {}, {}, {}
    for side, sign in SIDE.items():
        half = inside * inner * (x * sign > 0)
        dome = build.dome + (0.05 if side == "left" else 0.0) - raised.get(side, 0.0)
        floor = dome + 1.5 * (ax - 0.40) ** 2 + 0.9 * np.clip(ax - 0.55, 0, None) ** 2
        cavity[side] = half * sigmoid(base + 0.02 - y, 0.02)
        lung[side] = half * sigmoid(floor - y, 0.012)
        domes[side] = dome
    heart, mediastinum = _silhouettes(x, y, build, heart_scale, mediastinum_scale)
    risen = {side: fluid.get(side, 0.0) for side in SIDE}
    return Scene(size, x, y, build, lung, cavity, outer, top, heart, mediastinum, domes, risen)


def _silhouettes(
    x: Array, y: Array, build: Build, heart_scale: float, mediastinum_scale: float
) -> tuple[Array, Array]:
    """Heart and mediastinum, each the space between a right and a left border over height."""
    h = build.heart * heart_scale
    floor = build.dome - 0.10
    start = -0.14 - 0.30 * (h - 1.0)
    down = np.clip((y - start) / (floor - start), 0.0, 1.0)
    tuck = np.clip((y - floor) / 0.30, 0.0, 1.0) ** 2
    bulge = np.sin(0.5 * np.pi * down) ** 1.6
    left = 0.08 + 0.345 * h**1.6 * bulge * (1.0 - 0.45 * tuck)
    arc = np.clip(np.sin(np.pi * np.clip((y - start) / 0.85, 0.0, 1.0)), 0.0, None)
    right = 0.07 + 0.13 * h**2.0 * arc
    there = sigmoid(y - start, 0.02)
    heart = sigmoid(left - x, 0.013) * sigmoid(x + right, 0.013) * there
    w = mediastinum_scale
    knob = 0.085 * np.exp(-0.5 * ((y + 0.34) / 0.085) ** 2)
    trunk = 0.055 * np.exp(-0.5 * ((y + 0.08) / 0.11) ** 2)
    left = (0.105 + knob) * w + trunk
    right = 0.115 * w + 0.02 * np.clip(y + 0.4, 0.0, None)
    return heart, sigmoid(left - x, 0.013) * sigmoid(x + right, 0.013)


def draw_healthy(scene: Scene, rng: np.random.Generator) -> tuple[Array, Array]:
    """The chest without findings, and the vessel texture that findings may hide or crowd.

    Returns `[size, size]` float32 each; the second is already part of the first.
    """
    x, y, build = scene.x, scene.y, scene.build
    ax = np.abs(x)
    both = scene.lung["left"] + scene.lung["right"]
    shoulder = np.clip((y + 0.93) / 0.30, 0.0, 1.0)
    half_width = 0.30 + 0.72 * shoulder**0.8 - 0.05 * np.clip(y + 0.2, 0, None)
    torso = sigmoid(half_width - ax, 0.02)
    abdomen = sigmoid(y - build.dome - 0.02, 0.10)
    soft = 0.66 + 0.10 * abdomen - 0.14 * np.clip(ax - 0.75, 0, None) / 0.25
    image = torso * soft
    deep = 0.24 + 0.10 * np.clip(y + 0.1, 0, None) - 0.05 * np.clip(0.6 - ax, 0, None)
    image = image * (1 - both) + both * deep

    ribs = _ribs(scene) * sigmoid(scene.outer + 0.045, 0.012) * sigmoid(scene.top + 0.05, 0.02)
    image = image + 0.10 * ribs * (0.35 + 0.65 * both) * sigmoid(build.dome + 0.30 - y, 0.05)
    vessels = _vessels(scene, rng) * both * build.vessels
    image = image + vessels
    image = over(image, scene.mediastinum * torso, 0.63 + 0.04 * np.clip(y, 0, 1))
    image = over(image, scene.heart, 0.66 + 0.03 * y)
    spine = np.exp(-0.5 * (x / 0.075) ** 2)
    discs = 0.5 + 0.5 * np.cos(2 * np.pi * (y * 5.5 + build.ribs))
    image = image + spine * (0.05 + 0.03 * discs) * torso
    image = image - 0.13 * stroke(x, y, [(0.0, -1.0), (0.005, -0.30)], 0.032)
    image = image - 0.06 * stroke(x, y, [(0.005, -0.32), (-0.13, -0.18)], 0.025)
    image = image - 0.06 * stroke(x, y, [(0.005, -0.32), (0.15, -0.15)], 0.025)
    for sign in SIDE.values():
        line = [
            (0.07 * sign, build.apex + 0.17),
            (0.30 * sign, build.apex + 0.10),
            (0.60 * sign, build.apex + 0.02),
            (0.86 * sign, build.apex + 0.01),
        ]
        image = image + 0.13 * stroke(x, y, line, 0.028)
        blade = [(0.72 * sign, -0.72), (0.66 * sign, -0.45), (0.74 * sign, -0.16)]
        image = image + 0.035 * stroke(x, y, blade, 0.05)
    gas = ellipse(x, y, (0.36, scene.domes["left"] + 0.17), (0.13, 0.06), 0.02)
    image = image - 0.17 * gas * (1 - scene.lung["left"])
    return image.astype(np.float32), vessels.astype(np.float32)


def over(image: Array, mask: Array, density: Array | float) -> Array:
    """Raises the image to `density` under the mask; what is denser already stays."""
    return image + mask * np.clip(density - image, 0.0, None)


def rib_height(x: Array | float, phase: float) -> Array:
    """Compute the fractional posterior rib number at height 0; add y / 0.135 below."""
    return -(0.16 * (np.abs(x) / 0.75) - 0.34 * (np.abs(x) / 0.75) ** 3) / 0.135 + phase


def _ribs(scene: Scene) -> Array:
    ax = np.abs(scene.x)
    back = scene.y / 0.135 + rib_height(scene.x, scene.build.ribs)
    wave = np.cos(2 * np.pi * back)
    posterior = np.clip(wave - 0.1, 0, None) ** 0.7 * sigmoid(ax - 0.12, 0.02)
    front = (scene.y - 0.62 * (0.8 - ax) ** 1.0) / 0.16 + scene.build.ribs
    anterior = np.clip(np.cos(2 * np.pi * front) - 0.2, 0, None)
    anterior = anterior * sigmoid(ax - 0.33, 0.05) * sigmoid(scene.y + 0.45, 0.08)
    return 0.8 * posterior + 0.3 * anterior


def _vessels(scene: Scene, rng: np.random.Generator) -> Array:
    x, y = scene.x, scene.y
    out = np.zeros_like(x)
    for sign in SIDE.values():
        hx, hy = 0.19 * sign, -0.05 if sign < 0 else -0.09
        far = np.hypot(x - hx, y - hy)
        out = np.maximum(out, 0.13 * blob(x, y, (hx, hy), (0.05, 0.11)))
        for angle in np.linspace(-1.15, 1.25, 6) + rng.uniform(-0.12, 0.12, 6):
            reach = rng.uniform(0.30, 0.46)
            bend = rng.uniform(-0.08, 0.08)
            dx, dy = np.cos(angle) * sign, np.sin(angle)
            mid = (hx + 0.5 * reach * dx - bend * dy, hy + 0.5 * reach * dy + bend * dx * sign)
            end = (hx + reach * dx, hy + reach * dy)
            fork = (hx + 0.9 * reach * dx - 0.12 * dy, hy + 0.9 * reach * dy + 0.12 * dx * sign)
            fade = 0.12 * np.clip(1.05 - far / reach, 0, 1)
            out = np.maximum(out, fade * stroke(x, y, [(hx, hy), mid, end], 0.014))
            out = np.maximum(out, fade * stroke(x, y, [mid, fork], 0.010))
    lumps = cloud(rng, scene.size, 26)
    near = np.exp(-np.hypot(np.abs(x) - 0.2, y + 0.02) / 0.45)
    return out + 0.022 * lumps * near
