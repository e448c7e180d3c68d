"""Find the boxes around what a finding changes on the film."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rrgclinical.grounding import GRID, Box
from rrgdata.phantom.case import Case, Finding
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.draw import draw_frontal

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
