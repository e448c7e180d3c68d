"""RaTEScore as a reward, against its definition in plain loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rrgclinical import KINDS, Entities
from rrgclinical.ratescore import affinity
from rrgtrain.algorithms import edit_reports
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import EditSettings, RewardSettings
from tests.rrgclinical.cases import cases

SENTENCES = [sentence for sentence, _ in cases()]
REFERENCES = [" ".join(SENTENCES[i : i + 4]) for i in range(0, 40, 4)]
REPORTS = [" ".join(SENTENCES[i + 2 : i + 5]) for i in range(0, 40, 4)]
PRESENT, ABSENT = {"ABNORMALITY", "DISEASE"}, {"NON-ABNORMALITY", "NON-DISEASE"}


def plain_score(
    x: Entities, i: int, y: Entities, j: int, weights: dict[str, float], neg_weight: float
) -> float:
    """One pair, entity by entity."""

    def one_way(a: Entities, rows: slice, b: Entities, others: slice) -> float:
        top = bottom = 0.0
        for row in range(rows.start, rows.stop):
            cosines = [
                float(np.dot(a.embedding[row].astype(float), b.embedding[k].astype(float)))
                for k in range(others.start, others.stop)
            ]
            nearest = np.float32(max(cosines))
            own = KINDS[a.kind[row]]
            # One text read as two kinds has equal cosines: not crossed first, then the heaviest.
            ties = []
            for cosine, kind in zip(cosines, b.kind[others], strict=True):
                other = KINDS[kind]
                crossed = {own, other} & PRESENT and {own, other} & ABSENT
                if np.float32(cosine) == nearest:
                    ties.append((not crossed, weights[f"{own}_{other}".lower()]))
            straight, weight = max(ties)
            top += float(nearest) * weight * (1.0 if straight else neg_weight)
            bottom += weight
        return top / bottom if bottom else 0.0

    a, b = x.of_report(i), y.of_report(j)
    if a.start == a.stop or b.start == b.stop:
        return 0.5
    p, r = one_way(x, a, y, b), one_way(y, b, x, a)
    return 0.0 if p + r == 0 else 2 * p * r / (p + r)


class Recorded:
    """The extractor, keeping what it read in each text: other batches have other last bits."""

    def __init__(self, extractor) -> None:
        self.extractor, self.of = extractor, {}

    def __getattr__(self, name: str):
        return getattr(self.extractor, name)

    def extract(self, texts: Sequence[str]) -> Entities:
        found = self.extractor.extract(texts)
        self.of.update({text: (found, i) for i, text in enumerate(texts)})
        return found


def named(name: str) -> dict[str, float]:
    table = affinity(name)
    return {
        f"{KINDS[i]}_{KINDS[j]}".lower(): float(table[i, j]) for i in range(5) for j in range(5)
    }


def test_the_tables_are_the_published_ones() -> None:
    long, short = named("long"), named("short")
    assert long["abnormality_disease"] == 0.0034478181112993847
    assert long["disease_abnormality"] == 0.8396510075734789
    assert long["non-disease_anatomy"] == 0.1839139293714062
    assert long["anatomy_non-disease"] == 0.00013736314126696204
    assert short["non-abnormality_disease"] == 0.00045065329822896076
    assert short["disease_non-abnormality"] == 0.6962283914800402
    assert sum(long.values()) == pytest.approx(9.861789881026995, abs=1e-12)
    assert sum(short.values()) == pytest.approx(12.228034881999832, abs=1e-12)
    with pytest.raises(UserError, match="affinity 'medium'; choose long or short"):
        affinity("medium")


@pytest.mark.parametrize(("table", "neg_weight"), [("long", 0.3612), ("short", 0.8717)])
def test_the_term_is_the_definition(extractor, table: str, neg_weight: float) -> None:
    reports, references = [*REPORTS, ""], [*REFERENCES, REFERENCES[0]]
    settings = RewardSettings(
        terms={"ratescore": 1.0},
        extractor="ratescore",
        rate_affinity=table,
        neg_weight=neg_weight,
    )
    read = Recorded(extractor)
    found = RewardService(settings, extractor=read)(reports, references)["ratescore"]
    weights = named(table)
    wanted = [
        plain_score(*read.of[x], *read.of[y], weights, neg_weight)
        for x, y in zip(reports, references, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    # an empty side gives 0.5 in its place, and shifts nobody
    assert found[-1] == 0.5
    assert np.unique(found[:-1].round(6)).size == len(REPORTS)


def test_edits_towards_the_reference_find_their_entities_here(extractor) -> None:
    edited = edit_reports(REPORTS, REFERENCES, list(range(len(REPORTS))), extractor, EditSettings())
    assert any(edit.text != report for edit, report in zip(edited, REPORTS, strict=True))
    same = edit_reports(
        REFERENCES, REFERENCES, list(range(len(REFERENCES))), extractor, EditSettings()
    )
    assert [edit.text for edit in same] == REFERENCES
