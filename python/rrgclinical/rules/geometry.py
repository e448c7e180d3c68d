"""Unit embeddings of a finding with its attributes, built from orthogonal axes.

A vector is the tensor product of a concept vector and an attribute vector, so a cosine is the
product of two similarities that can be read off the tables below:

    cos = <concept, concept'> * (A + B side.side' + C zone.zone' + D severity.severity')

Concepts of different families are orthogonal, two of one family have cosine `RELATED`. In each
attribute plane "unspecified" is the axis, and the values lean off it by an angle, so that they
are nearer to it than to each other. The weights make a contradiction in side or in zone alone
cost more than 0.4 (cosine 0.59), and leaving both unsaid with opposite severities cost less
(0.61), so EditGRPO's threshold of 0.6 separates contradictory from compatible for every pair.
"bilateral" contains each side and is embedded as unspecified; so is "moderate".
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from rrgclinical.rules.concepts import CONCEPTS, LUNG, PLAIN, SIDED

RELATED = 0.5
"""Cosine of two findings of one family without attributes."""

_SIDE_WEIGHT, _ZONE_WEIGHT, _SEVERITY_WEIGHT = 0.275, 0.365, 0.07
_CONCEPT_WEIGHT = 1.0 - _SIDE_WEIGHT - _ZONE_WEIGHT - _SEVERITY_WEIGHT


def _lean(angle: float, *direction: float) -> list[float]:
    return [math.cos(angle), *(math.sin(angle) * value for value in direction)]


_SIXTY, _FORTY_FIVE = math.radians(60), math.radians(45)
_SIDE = np.array([[1, 0], _lean(_SIXTY, -1), _lean(_SIXTY, 1), [1, 0]])
_ZONE = np.array(
    [
        [1, 0, 0],
        *(
            _lean(_SIXTY, math.cos(turn), math.sin(turn))
            for turn in (0.0, 2 * math.pi / 3, 4 * math.pi / 3)
        ),
    ]
)
_SEVERITY = np.array([[1, 0], _lean(_FORTY_FIVE, -1), [1, 0], _lean(_FORTY_FIVE, 1)])


@cache
def _concept_vectors() -> np.ndarray:
    """[C, C] unit rows: identity between families, Gram `RELATED` inside one."""
    gram = np.eye(len(CONCEPTS))
    for i, first in enumerate(CONCEPTS):
        for j, second in enumerate(CONCEPTS):
            if i != j and first.family == second.family:
                gram[i, j] = RELATED
    return np.linalg.cholesky(gram)


def _attribute_vector(layout: str, side: int, zone: int, severity: int) -> np.ndarray:
    if layout == PLAIN:
        side = 0
    if layout != LUNG:
        zone = 0
    return np.concatenate(
        [
            [math.sqrt(_CONCEPT_WEIGHT)],
            math.sqrt(_SIDE_WEIGHT) * _SIDE[side],
            math.sqrt(_ZONE_WEIGHT) * _ZONE[zone],
            math.sqrt(_SEVERITY_WEIGHT) * _SEVERITY[severity],
        ]
    )


def _product(concept: int, side: int, zone: int, severity: int) -> np.ndarray:
    attributes = _attribute_vector(CONCEPTS[concept].layout, side, zone, severity)
    return np.kron(_concept_vectors()[concept], attributes)


@cache
def _used_columns() -> np.ndarray:
    used = np.zeros(_product(0, 0, 0, 0).shape, dtype=bool)
    for concept, entry in enumerate(CONCEPTS):
        for side in range(4 if entry.layout in (LUNG, SIDED) else 1):
            for zone in range(4 if entry.layout == LUNG else 1):
                for severity in range(4):
                    used |= _product(concept, side, zone, severity) != 0
    return np.flatnonzero(used)


def dimension() -> int:
    """Length of an embedding."""
    return int(_used_columns().size)


@cache
def embed(concept: int, side: int, zone: int, severity: int) -> np.ndarray:
    """float32 [dimension()], a unit vector; read-only, shared between calls."""
    vector = _product(concept, side, zone, severity)[_used_columns()]
    row = (vector / np.linalg.norm(vector)).astype(np.float32)
    row.flags.writeable = False
    return row
