"""The drawing shows what the case says: on its side, at its height, as strongly as its size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rrgdata.phantom import PhantomConfig
from rrgdata.phantom.case import DEVICES, FINDINGS, SIDED, Case, Finding, sample_case
from rrgdata.phantom.draw import draw_frontal, draw_lateral

QUIET = PhantomConfig(noise=0.0)
SEEDS = range(2)


@cache
def drawn(findings, seed, config, draw):
    return np.asarray(draw(Case((3, seed), findings, ()), config), dtype=np.float64)


def shown(findings, seed=0, config=QUIET, draw=draw_frontal):
    return drawn(tuple(findings), seed, config, draw)


def difference(finding, seed=0, config=QUIET, draw=draw_frontal):
    return shown([finding], seed, config, draw) - shown([], seed, config, draw)


def place(name):
    zone = "lower" if name in ("opacity", "consolidation", "pneumonia", "lesion") else ""
    kind = "chest tube" if name == "device" else ""
    side = "" if name in ("cardiomegaly", "edema", "mediastinum") else "left"
    return Finding(name, side=side, zone=zone, kind=kind)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", sorted(SIDED))
def test_side_of_the_drawing_is_the_patients_side(name, side, seed):
    change = np.abs(difference(replace(place(name), side=side), seed))
    left_of_image, right_of_image = change[:, :56].sum(), change[:, 56:].sum()
    right, left = left_of_image, right_of_image
    assert {"left": left, "right": right}[side] > 0.9 * change.sum() > 0


@pytest.mark.parametrize("kind", DEVICES)
def test_every_device_is_seen(kind):
    change = difference(Finding("device", side="left", kind=kind))
    assert (change > 15).sum() > 20


@pytest.mark.parametrize("name", ["opacity", "consolidation", "pneumonia", "lesion"])
def test_zones_lie_in_order(name):
    height = []
    for zone in ("upper", "middle", "lower"):
        change = np.abs(difference(Finding(name, side="right", zone=zone)))
        height.append((change.sum(axis=1) * np.arange(112)).sum() / change.sum())
    assert height[0] + 15 < height[1] < height[2] - 4


@pytest.mark.parametrize("name", sorted(set(FINDINGS) - {"device", "fracture"}))
def test_larger_is_more(name):
    total = [np.abs(difference(replace(place(name), severity=s))).sum() for s in (1, 2, 3)]
    assert total[0] * 1.15 < total[1] and total[1] * 1.15 < total[2]


@pytest.mark.parametrize("name", sorted(FINDINGS))
def test_contrast_grades_visibility_down_to_nothing(name):
    total = [
        np.abs(difference(place(name), config=PhantomConfig(noise=0, contrast=c))).sum()
        for c in (0.0, 0.4, 1.0)
    ]
    assert total[0] == 0 and 0 < total[1] < total[2]


@pytest.mark.parametrize("name", sorted(set(FINDINGS) - {"device"}))
def test_uncertain_is_fainter(name):
    sure, unsure = place(name), replace(place(name), uncertain=True)
    assert np.abs(difference(unsure)).sum() < 0.9 * np.abs(difference(sure)).sum()


def test_same_seed_same_image_other_seed_other_body():
    case = sample_case(PhantomConfig(), (0, 0, 5))
    config = PhantomConfig()
    assert draw_frontal(case, config).tobytes() == draw_frontal(case, config).tobytes()
    other = replace(case, seed=(0, 0, 6))
    assert draw_frontal(case, config).tobytes() != draw_frontal(other, config).tobytes()


def test_prior_shows_the_earlier_findings_of_the_same_body():
    new = Finding("effusion", side="right", change="new")
    grown = Finding("cardiomegaly", severity=3, change="larger")
    gone = Finding("edema", severity=2)
    case = Case(
        (1, 2),
        (new, grown),
        ("Edema",),
        earlier=(replace(grown, severity=2), gone),
        resolved=(gone,),
    )
    prior = np.asarray(draw_frontal(case, QUIET, prior=True))
    earlier = replace(case, findings=case.earlier)
    assert (prior == np.asarray(draw_frontal(earlier, QUIET))).all()
    assert (prior != np.asarray(draw_frontal(case, QUIET))).mean() > 0.05
    with pytest.raises(ValueError, match="no prior"):
        draw_frontal(replace(case, earlier=None), QUIET, prior=True)


@pytest.mark.parametrize(
    "finding",
    [
        Finding("effusion", side="left"),
        Finding("consolidation", side="right", zone="upper"),
        Finding("cardiomegaly", severity=3),
        Finding("edema", severity=3),
        Finding("lesion", side="left", zone="lower", severity=3),
        Finding("device", side="left", kind="pacemaker"),
    ],
)
def test_lateral_shows(finding):
    change = difference(finding, draw=draw_lateral)
    assert change[np.abs(change) > 3].mean() > 5 and (np.abs(change) > 3).sum() > 20
