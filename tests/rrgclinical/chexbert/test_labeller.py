"""Labels equal to the official way of running the same weights, whatever the batch."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from rrgclinical import OBSERVATIONS, build_labeller
from rrgclinical.chexbert import piece_saliency, to_classification
from rrgclinical.chexbert.distilled import distil
from rrgclinical.chexbert.pieces import ReportTokenizer, read_vocabulary, refuse_foreign
from rrgtrain.errors import UserError
from tests.rrgclinical.chexbert import tiny

REPORTS = [*tiny.ADVERSARIAL, *tiny.reports(220)]


@pytest.fixture(scope="module")
def official(folder):
    return np.array(tiny.official_labels(REPORTS, folder), dtype=np.int8)


def test_labels_are_official(labeller, official):
    # A fixture that says the same of every report would hide a mixed-up order.
    assert {int(i) for i in np.unique(official)} == {0, 1, 2, 3}
    assert len(np.unique(official, axis=0)) > 50
    found = labeller.label(REPORTS)
    assert found.dtype == np.int8
    assert np.array_equal(found, official)


@pytest.mark.parametrize("budget", [1, 64, 700, 10**9])
def test_any_batch_gives_the_same_labels(folder, official, budget):
    some = [0, 3, 5, 11, *range(20, 60)]
    found = tiny.labeller(folder, token_budget=budget).label([REPORTS[i] for i in some])
    assert np.array_equal(found, official[some])


def test_a_repeated_report_is_read_once(labeller, monkeypatch):
    rows = []
    forward = labeller.network.forward
    monkeypatch.setattr(
        labeller.network, "forward", lambda e, m: (rows.append(len(e)), forward(e, m))[1]
    )
    found = labeller.label([REPORTS[20], REPORTS[21], REPORTS[20], REPORTS[20]])
    assert sum(rows) == 2
    assert np.array_equal(found[[0, 0, 0]], found[[0, 2, 3]])
    assert not np.array_equal(found[0], found[1])


def test_truncation_is_told_once(folder, caplog):
    labeller = tiny.labeller(folder)
    with caplog.at_level(logging.WARNING):
        labeller.label(["heart", tiny.LONG, ""])
        labeller.label([tiny.LONG])
    assert [r.getMessage()[:32] for r in caplog.records] == ["1 of 3 reports exceed the 512 wo"]


def test_bf16_heads_stay_fp32(folder, labeller):
    half = tiny.labeller(folder, dtype="bf16")
    logits = half.class_logits(REPORTS[20:120])
    assert logits.dtype == torch.float32
    assert half.network.bert.dtype == torch.bfloat16
    assert torch.equal(half.network.heads.weight, labeller.network.heads.weight)
    agree = (half.label(REPORTS[20:120]) == labeller.label(REPORTS[20:120])).mean()
    assert agree > 0.9


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_no_labels(folder, value):
    labeller = tiny.labeller(folder)
    labeller.network.heads.bias[6] = value
    with pytest.raises(FloatingPointError, match="logits are not finite"):
        labeller.label(["heart"])


def test_the_classification_of_the_official_package():
    row = np.array([[0, 1, 2, 3] * 3 + [0, 1]], dtype=np.int8)
    assert to_classification(row) == [["", 1, 0, -1] * 3 + ["", 1]]
    with pytest.raises(ValueError, match=r"shape \(1, 13\)"):
        to_classification(row[:, :13])


def test_fingerprint_tells_weights_and_dtypes_apart(folder, labeller, tmp_path):
    assert tiny.labeller(folder).fingerprint == labeller.fingerprint
    assert tiny.labeller(folder, dtype="bf16").fingerprint != labeller.fingerprint

    def change(state):
        state["module.linear_heads.3.bias"][1] += 1

    other = tiny.labeller(tiny.write_folder(tmp_path, change))
    assert other.fingerprint != labeller.fingerprint


# A CheXbert learned from another labeller: it learns, repeats itself, and points at findings.
TAUGHT = [
    "The heart is enlarged. There is a small left pleural effusion. No pneumothorax.",
    "Lungs are clear. No pleural effusion or pneumothorax. Heart size is normal.",
    "Mild edema. No focal consolidation. There is a healed rib fracture.",
    "There is a left pneumothorax. The heart is normal in size. No edema.",
]
RULES = build_labeller("rules")


@pytest.fixture(scope="module")
def learned():
    return distil(RULES, TAUGHT, steps=100)


def test_it_labels_what_it_learned_from(learned) -> None:
    shuffled = [". ".join(reversed(r.rstrip(".").split(". "))) + "." for r in TAUGHT]
    found, wanted = learned.label(shuffled), RULES.label(shuffled)
    assert (found == wanted).mean() > 0.95
    untrained = distil(RULES, TAUGHT, steps=1)
    assert (untrained.label(shuffled) == wanted).mean() < (found == wanted).mean()


def test_the_same_arguments_give_the_same_bits(learned) -> None:
    state = torch.get_rng_state()
    one, two = (distil(RULES, TAUGHT, seed=3, steps=2) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state), "the run's own draws are not moved"
    assert torch.equal(one.class_logits(TAUGHT), two.class_logits(TAUGHT))
    assert not any(p.requires_grad for p in learned.network.parameters())


def test_the_gradient_is_largest_where_the_finding_stands(learned) -> None:
    report = "Lungs are clear. There is a left pneumothorax. Heart size is normal."
    truth = np.zeros((1, 14), dtype=np.int8)
    truth[0, OBSERVATIONS.index("Pneumothorax")] = 1
    found = piece_saliency(learned, [report], truth)
    inside = [report.index("There") <= a < report.index("Heart") for a, _ in found.spans.tolist()]
    top = int(found.saliency.argmax())
    assert inside[top], report[slice(*found.spans[top].tolist())]


# The ids are those of the official_tokenizer preprocessing, the spans those of the report as given.
SIZE = len(tiny.VOCABULARY)
PIECES = ReportTokenizer({piece: row for row, piece in enumerate(tiny.VOCABULARY)}, 512)


@pytest.fixture(scope="module")
def official_tokenizer(folder):
    return BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=True)


@pytest.mark.parametrize("report", tiny.ADVERSARIAL)
def test_ids_are_official(report, official_tokenizer):
    (found,) = PIECES([report])
    assert found.ids == tiny.official_ids(report, official_tokenizer)
    assert len(found.ids) == len(found.spans) + 2 <= 512
    assert found.truncated == (len(official_tokenizer.tokenize(report)) > 510)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*tiny.WORDS, *" \n\t\x0b\x0c\x1c\x85\xa0\u2028.,-é[]😀心\xad"])))
def test_any_mixture_is_official(official_tokenizer, parts):
    report = "".join(parts)
    assert PIECES([report])[0].ids == tiny.official_ids(report, official_tokenizer)


def test_spans_point_into_the_report_as_given():
    report = " Heart \n\n caf\u00e9\x85cafe\u0301 😀 Cardiomegaly"
    (found,) = PIECES([report])
    assert [report[a:b] for a, b in found.spans] == [
        "Heart", "caf\u00e9", "cafe", "😀", "Cardio", "megaly",
    ]  # fmt: skip


def test_vocabulary_of_a_tokenizer_file(tmp_path):
    vocabulary = {piece: row for row, piece in enumerate(tiny.VOCABULARY)}
    content = json.dumps({"model": {"type": "WordPiece", "vocab": vocabulary}})
    (tmp_path / "tokenizer.json").write_text(content)
    assert read_vocabulary(tmp_path, SIZE) == vocabulary


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        (None, "", "has neither vocab.txt nor tokenizer.json"),
        ("vocab.txt", "[PAD]\nthe\n", f"has 2 word pieces, not 0 to {SIZE - 1}"),
        ("vocab.txt", "\n".join(map(str, range(SIZE))), r"lacks \[PAD\], \[UNK\]"),
        ("tokenizer.json", "{}", "holds no WordPiece vocabulary"),
        ("tokenizer.json", "no json", "holds no WordPiece vocabulary"),
    ],
)
def test_a_folder_without_the_vocabulary_is_told(tmp_path, file, content, text):
    if file:
        (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=text) as caught:
        read_vocabulary(tmp_path, SIZE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nobody/never-downloaded", "a/b/c"])
def test_nothing_is_downloaded(name):
    with pytest.raises(UserError, match=f"{name} is no folder and not in the local hub cache"):
        read_vocabulary(name, SIZE)


def test_another_vocabulary_of_the_same_size_is_refused():
    refuse_foreign({"[CLS]": 101, "[SEP]": 102, "the": 1996})
    with pytest.raises(UserError, match=r"'\[CLS\]' is 2 in the vocabulary, not 101"):
        refuse_foreign({"[CLS]": 2, "[SEP]": 3, "the": 1680})
    with pytest.raises(UserError, match="'the' is absent"):
        refuse_foreign({"[CLS]": 101, "[SEP]": 102})
