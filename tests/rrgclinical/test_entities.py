"""Entities refuse to be built from fields that contradict each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rrgclinical import Entities, build_extractor

GOOD = build_extractor("rules").extract(["No effusion. Heart is enlarged.", "Clear lungs."])


def test_a_rebuilt_copy_is_accepted():
    assert len(dataclasses.replace(GOOD)) == len(GOOD)


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("sentences", GOOD.sentences[:1], ValueError, "sentences of 1 reports; wanted 2"),
        ("offsets", GOOD.offsets[:-1], ValueError, r"offsets has shape \(2,\)"),
        ("offsets", GOOD.offsets + 1, ValueError, "offsets run"),
        ("offsets", GOOD.offsets.astype(np.int32), TypeError, "offsets is int32"),
        ("presence", GOOD.presence + np.int8(3), ValueError, "presence holds"),
        ("kind", GOOD.kind + np.int8(100), ValueError, "kind holds"),
        ("key", GOOD.key.tolist(), TypeError, "key is list"),
        ("sentence", GOOD.sentence + np.int32(9), ValueError, "names sentence 9 of report 0"),
        ("span", GOOD.span + np.int32(500), ValueError, "outside its sentence"),
        ("span", GOOD.span[:, :1], ValueError, "span has shape"),
        ("embedding", GOOD.embedding * 2, ValueError, "norm 2; wanted unit rows"),
        ("embedding", GOOD.embedding * np.float32(np.nan), ValueError, "norm nan"),
        ("embedding", GOOD.embedding.astype(np.float64), TypeError, "embedding is float64"),
        ("embedding", GOOD.embedding[:-1], ValueError, "embedding has shape"),
        ("sentences", [[(0, 99)], GOOD.sentences[1]], ValueError, r"sentence span \(0, 99\)"),
    ],
)
def test_a_broken_field_is_named(field, value, error, text):
    with pytest.raises(error, match=text):
        dataclasses.replace(GOOD, **{field: value})


def test_slices_of_reports():
    assert isinstance(GOOD, Entities)
    assert GOOD.of_report(0) == slice(0, int(GOOD.offsets[1]))
    assert GOOD.of_report(1).stop == len(GOOD)
