"""Entities: presence, spans, canonical keys, and the geometry of their embeddings."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from rrgclinical import KINDS, Entities, build_extractor, build_labeller
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.extractor import dimension, embed
from tests.rrgclinical.cases import sentences_with_entities, table, templates

EXTRACTOR = build_extractor("rules")
THRESHOLD = 0.6
"""EditGRPO's cosine threshold, which the geometry is built around."""


def findings(text: str) -> Entities:
    return EXTRACTOR.extract([text])


def said(text: str) -> list[str]:
    entities = findings(text)
    return [
        "-+"[presence] + name
        for name, presence in zip(entities.text, entities.presence.tolist(), strict=True)
        if presence >= 0
    ]


def misread(rows: list, read: Callable[[str], object]) -> dict[str, object]:
    return {text: read(text) for text, wanted in rows if read(text) != wanted}


def cosine(first: str, second: str) -> float:
    vectors = []
    for text in (first, second):
        entities = findings(text)
        rows = entities.embedding[entities.presence >= 0]
        assert len(rows) == 1, (text, said(text))
        vectors.append(rows[0].astype(np.float64))
    return float(vectors[0] @ vectors[1])


def test_canonical_text_and_presence():
    rows = sentences_with_entities()
    assert len(rows) == 39
    assert not misread(rows, said)


SYNONYMS = table("synonyms")  # fmt: skip


@pytest.mark.parametrize("group", SYNONYMS, ids=lambda group: group[0])
def test_synonyms_have_cosine_one_and_one_key(group):
    for first, second in itertools.combinations(group, 2):
        assert cosine(first, second) == pytest.approx(1.0, abs=1e-6)
        keys = [findings(text) for text in (first, second)]
        assert len({int(e.key[e.presence >= 0][0]) for e in keys}) == 1


# rows of the tables: cosines above the first bound, and at most the second
BANDS = {
    "compatible": (THRESHOLD, 1.0),
    "contradictory": (0.3, THRESHOLD - 2e-6),
    "related": (0.3, 0.5),
    "unrelated": (-1e-6, 0.0),
}


@pytest.mark.parametrize(
    ("kind", "first", "second"), [(kind, *pair) for kind in BANDS for pair in table(kind)]
)
def test_a_pair_of_a_table_is_as_alike_as_its_kind(kind, first, second):
    low, high = BANDS[kind]
    assert low < cosine(first, second) < high + 1e-6


def test_severity_alone_costs_little():
    assert 0.85 <= cosine("Small left effusion.", "Large left effusion.") <= 0.95


def test_the_threshold_separates_compatible_from_contradictory_for_every_pair():
    values = list(itertools.product(range(4), range(4), range(4)))
    for concept, entry in enumerate(CONCEPTS):
        rows = np.stack([embed(concept, *value) for value in values]).astype(np.float64)
        cosines = rows @ rows.T
        for (i, first), (j, second) in itertools.combinations(enumerate(values), 2):
            sides = {first[0], second[0]} == {1, 2} and entry.layout != "plain"
            zones = 0 < first[1] != second[1] > 0 and entry.layout == "lung"
            contradict = sides or zones
            assert (cosines[i, j] < THRESHOLD) == contradict, (entry.name, first, second)


def test_families_are_orthogonal_and_relatives_half_way():
    rows = np.stack([embed(c, 0, 0, 0) for c in range(len(CONCEPTS))]).astype(np.float64)
    family = np.array([concept.family for concept in CONCEPTS])
    wanted = np.where(family[:, None] == family[None], 0.5, 0.0)
    np.fill_diagonal(wanted, 1.0)
    np.testing.assert_allclose(rows @ rows.T, wanted, atol=1e-6)


def test_absence_changes_kind_and_key_but_not_the_vector():
    present, absent = findings("Left effusion."), findings("No left effusion.")
    assert KINDS[present.kind[0]] == "ABNORMALITY"
    assert KINDS[absent.kind[0]] == "NON-ABNORMALITY"
    assert present.key[0] != absent.key[0]
    np.testing.assert_array_equal(present.embedding, absent.embedding)


def test_diseases_and_anatomy_have_their_kinds():
    entities = findings("Heart size is normal. Possible pneumonia. No pneumonia.")
    kinds = {
        (KINDS[kind], presence)
        for kind, presence in zip(entities.kind, entities.presence.tolist(), strict=True)
    }
    assert ("ANATOMY", -1) in kinds
    assert ("DISEASE", 1) in kinds
    assert ("NON-DISEASE", 0) in kinds


def test_batch_layout():
    reports = ["Clear lungs. No effusion.", "", "Cardiomegaly."]
    entities = EXTRACTOR.extract(reports)
    assert entities.offsets.tolist()[0] == 0
    assert np.diff(entities.offsets).tolist()[1] == 0
    assert entities.embedding.shape == (len(entities), dimension())
    assert entities.report_index().tolist() == sorted(entities.report_index().tolist())
    for row, report in enumerate(reports):
        alone = EXTRACTOR.extract([report])
        part = entities.of_report(row)
        assert alone.text == entities.text[part]
        np.testing.assert_array_equal(alone.key, entities.key[part])
        np.testing.assert_array_equal(alone.span, entities.span[part])


def test_span_covers_the_words():
    text = "Stable. There is a small left pleural effusion."
    entities = findings(text)
    start, end = entities.span[0]
    assert text[start:end] == "pleural effusion"
    assert entities.sentence.tolist() == [1]


def test_the_wrong_side_is_no_match():
    matched = []
    for sentence in templates("SIDED"):
        found = EXTRACTOR.extract([sentence.format(side) for side in ("left", "right")])
        present = [row for row in range(len(found)) if found.presence[row] == 1]
        left, right = ([r for r in present if found.report_index()[r] == side] for side in (0, 1))
        assert left and len(left) == len(right), sentence
        same = set(found.key[left].tolist()) & set(found.key[right].tolist())
        cosines = found.embedding[left].astype(float) @ found.embedding[right].astype(float).T
        if same or cosines.max() >= 0.6:
            matched.append(sentence)
    assert not matched and len(templates("SIDED")) == 22


# Finer findings, and the doubt, change, size and tip of an entity.
def test_finer_findings_are_told_apart():
    assert not misread(table("finer findings"), lambda text: " ".join(dict.fromkeys(said(text))))


def test_change_size_and_tip_are_of_the_finding_beside_them():
    def read(text: str) -> str:
        e = EXTRACTOR.extract([text])
        columns = zip(e.presence, e.change, e.size, e.tip, strict=True)
        return " ".join(f"{c},{s:g},{t}" for p, c, s, t in columns if p == 1)

    rows = table("change, size in mm and tip of the present entities in order")
    assert not misread(rows, read)


def test_doubt_is_kept_and_denials_carry_nothing():
    e = EXTRACTOR.extract(["Possible pneumonia. New left effusion. No new 3 cm mass."])
    assert [(n, int(d)) for n, d in zip(e.text, e.doubt, strict=True)] == [
        ("pneumonia", 1), ("left pleural effusion", 0), ("lung lesion", 0)]  # fmt: skip
    assert e.change.tolist() == [0, 3, 0] and e.size.tolist() == [0, 0, 0]


def test_what_is_left_out_is_unsaid():
    e = EXTRACTOR.extract(["Possible 4 cm mass, increased since the prior study."])
    assert (e.doubt[0], e.change[0], e.size[0]) == (1, 3, 40)
    old = {k: v for k, v in vars(e).items() if k not in ("doubt", "change", "size", "tip")}
    plain = Entities(**old)
    assert not plain.doubt.any() and not plain.change.any() and not plain.tip.any()
    assert plain.size.dtype == np.float32 and not plain.size.any()
    with pytest.raises(ValueError, match="tip holds"):
        Entities(**{**old, "tip": np.full(len(e), 3, np.int8)})


def test_no_label_depends_on_the_finer_reading():
    labels = build_labeller("rules").label(
        ["Old rib fracture.", "Rib fracture.", "Left upper lobe collapse.", "Atelectasis."]
    )
    assert (labels[0] == labels[1]).all() and (labels[2] == labels[3]).all()
    # without an observation of their own these say nothing to the labels, and not that all is well
    assert not build_labeller("rules").label(["Aortic dissection. Dislocation."]).any()
