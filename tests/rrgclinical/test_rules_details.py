"""Finer findings, and the doubt, change, size and tip of an entity."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical import Entities, build_extractor, build_labeller
from rrgclinical.cached import pack_entities, unpack_entities
from tests.rrgclinical.cases import table

EXTRACTOR = build_extractor("rules")


def test_finer_findings_are_told_apart():
    wrong = {}
    for text, wanted in table("finer findings"):
        e = EXTRACTOR.extract([text])
        named = zip(e.text, e.presence.tolist(), strict=True)
        said = " ".join(dict.fromkeys("-+"[p] + name for name, p in named if p >= 0))
        if said != wanted:
            wrong[text] = said
    assert not wrong


def test_change_size_and_tip_are_of_the_finding_beside_them():
    wrong = {}
    for text, wanted in table("change, size in mm and tip of the present entities in order"):
        e = EXTRACTOR.extract([text])
        columns = zip(e.presence, e.change, e.size, e.tip, strict=True)
        said = " ".join(f"{c},{s:g},{t}" for p, c, s, t in columns if p == 1)
        if said != wanted:
            wrong[text] = said
    assert not wrong


def test_doubt_is_kept_and_denials_carry_nothing():
    e = EXTRACTOR.extract(["Possible pneumonia. New left effusion. No new 3 cm mass."])
    assert [(n, int(d)) for n, d in zip(e.text, e.doubt, strict=True)] == [
        ("pneumonia", 1), ("left pleural effusion", 0), ("lung lesion", 0)]  # fmt: skip
    assert e.change.tolist() == [0, 3, 0] and e.size.tolist() == [0, 0, 0]


def test_what_is_said_survives_packing_and_is_unsaid_where_left_out():
    text = "Possible 4 cm mass, increased since the prior study."
    e = EXTRACTOR.extract([text])
    back = unpack_entities(pack_entities(e), text)
    for name in ("doubt", "change", "size", "tip"):
        assert (getattr(back, name) == getattr(e, name)).all() and len(getattr(e, name)) == len(e)
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
