"""The ids are those of the official preprocessing, the spans those of the report as given."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from rrgclinical.chexbert.pieces import ReportTokenizer, read_vocabulary, refuse_foreign
from rrgtrain.errors import UserError
from tests.rrgclinical.chexbert import tiny

SIZE = len(tiny.VOCABULARY)
PIECES = ReportTokenizer({piece: row for row, piece in enumerate(tiny.VOCABULARY)}, 512)


@pytest.fixture(scope="module")
def official(folder):
    return BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=True)


@pytest.mark.parametrize("report", tiny.ADVERSARIAL)
def test_ids_are_official(report, official):
    (found,) = PIECES([report])
    assert found.ids == tiny.official_ids(report, official)
    assert len(found.ids) == len(found.spans) + 2 <= 512
    assert found.truncated == (len(official.tokenize(report)) > 510)


def test_many_reports_are_official(official):
    reports = tiny.reports(200)
    assert [one.ids for one in PIECES(reports)] == [tiny.official_ids(r, official) for r in reports]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*tiny.WORDS, *" \n\t\x0b\x0c\x1c\x85\xa0\u2028.,-é[]😀心\xad"])))
def test_any_mixture_is_official(official, parts):
    report = "".join(parts)
    assert PIECES([report])[0].ids == tiny.official_ids(report, official)


def test_without_the_replacement_words_would_join():
    """The trap: BERT deletes a vertical tab, so the raw text reads as one unknown word."""
    (found,) = PIECES(["heart\x0bnormal"])
    assert [tiny.VOCABULARY[i] for i in found.ids[1:-1]] == ["heart", "normal"]
    assert found.spans == [(0, 5), (6, 12)]


def test_spans_point_into_the_report_as_given():
    report = " Heart \n\n caf\u00e9\x85cafe\u0301 😀 Cardiomegaly"
    (found,) = PIECES([report])
    assert [report[a:b] for a, b in found.spans] == [
        "Heart", "caf\u00e9", "cafe", "😀", "Cardio", "megaly",
    ]  # fmt: skip


def test_five_hundred_and_twelve_ids_fit():
    fits, over = PIECES(["the " * 510, "the " * 511])
    assert (len(fits.ids), fits.truncated) == (512, False)
    assert (len(over.ids), over.truncated) == (512, True)
    assert over.ids[-1] == PIECES.sep


def test_vocabulary_of_a_tokenizer_file(tmp_path):
    vocabulary = {piece: row for row, piece in enumerate(tiny.VOCABULARY)}
    content = json.dumps({"model": {"type": "WordPiece", "vocab": vocabulary}})
    (tmp_path / "tokenizer.json").write_text(content)
    assert read_vocabulary(tmp_path, SIZE) == vocabulary


def test_vocabulary_of_a_text_file(folder):
    assert list(read_vocabulary(folder, SIZE)) == tiny.VOCABULARY


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


def test_no_tokenizer_is_told():
    with pytest.raises(UserError, match="no tokenizer given; pass a folder with the vocabulary"):
        read_vocabulary(None, SIZE)


def test_another_vocabulary_of_the_same_size_is_refused():
    refuse_foreign({"[CLS]": 101, "[SEP]": 102, "the": 1996})
    with pytest.raises(UserError, match=r"'\[CLS\]' is 2 in the vocabulary, not 101"):
        refuse_foreign({"[CLS]": 2, "[SEP]": 3, "the": 1680})
    with pytest.raises(UserError, match="'the' is absent"):
        refuse_foreign({"[CLS]": 101, "[SEP]": 102})


def test_a_limit_without_room_for_a_piece_is_refused():
    with pytest.raises(ValueError, match="limit is 2"):
        ReportTokenizer({piece: row for row, piece in enumerate(tiny.VOCABULARY)}, 2)
