"""R2Gen's words by hand, and PTB's against the Java program."""

from __future__ import annotations

import shutil

import pytest
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from rrgclinical.common.errors import UserError
from rrgclinical.text import R2Gen, build_tokenization, r2gen_tokens, r2gen_vocabulary, text_scores
from tests.rrgclinical.cases import table

# Worked out from the rules of clean_report_iu_xray and clean_report_mimic_cxr.
BOTH = table("words of R2Gen")


@pytest.mark.parametrize("dataset", ["iu_xray", "mimic_cxr"])
@pytest.mark.parametrize(("report", "words"), BOTH)
def test_r2gens_words(report, words, dataset) -> None:
    assert " ".join(r2gen_tokens(report, dataset)) == words


@pytest.mark.parametrize(
    ("report", "iu", "mimic"),
    [
        # only MIMIC's rules join lines and spaces before numbers are looked for
        ("Clear.\nEdema", "clear edema .", "clear . edema ."),
        ("Clear.  2. Edema", "clear . . edema .", "clear . edema ."),
        # three passes of halving leave one stop of eight, eight passes one of 256
        ("1" + "." * 8 + " Edema", "edema .", "edema ."),
        ("1" + "." * 9 + " Edema", "1 . edema .", "edema ."),
        ("1" + "." * 257 + " Edema", "1 . edema .", "1 . edema ."),
        # the underscore goes from both
        ("___ seen at __.", "seen at .", "seen at ."),
    ],
)
def test_r2gens_words_by_data_set(report, iu, mimic) -> None:
    assert " ".join(r2gen_tokens(report, "iu_xray")) == iu
    assert " ".join(r2gen_tokens(report, "mimic_cxr")) == mimic


def test_unknown_words_of_predictions_stay_where_references_have_them() -> None:
    text = "the <unk> is clear . <unk> x<unk> <unk>"
    plain, rare = R2Gen("mimic_cxr"), R2Gen("mimic_cxr", vocabulary={"the"})
    assert " ".join(plain.reports([text])[0]) == "the unk is clear . unk xunk unk ."
    assert " ".join(rare.reports([text])[0]) == "the <unk> is clear . <unk> xunk <unk> ."


def test_r2gen_cuts_references_one_shorter_than_predictions() -> None:
    words = R2Gen("iu_xray", max_seq_length=4)
    assert words.reports(["a b c d e"]) == [("a", "b", "c", "d")]
    assert words.references(["a b c d e"]) == [("a", "b", "c")]
    assert R2Gen("iu_xray").references(["a b c d e"]) == [("a", "b", "c", "d", "e", ".")]
    assert text_scores(["a b"], ["a b"], tokenization=words, meteor=False).tokenization == (
        "r2gen (iu_xray, max_seq_length 4)"
    )


def test_rare_words_of_references_are_unknown() -> None:
    training = ["Edema. Mass.", "edema today", "Edema!"]
    vocabulary = r2gen_vocabulary(training, "iu_xray")
    assert vocabulary == {"edema", "."}
    assert r2gen_vocabulary(training, "mimic_cxr", 1) == {"edema", "mass", "today", "."}
    words = R2Gen("iu_xray", vocabulary=vocabulary)
    assert words.references(["Mass, edema."]) == [("<unk>", "edema", ".")]
    assert words.reports(["Mass, edema."]) == [("mass", "edema", ".")]
    assert words.name == "r2gen (iu_xray, rare words <unk>)"


def test_white_space_alone_parts_words() -> None:
    words = build_tokenization("space")
    typed = "The  Heart, is\tLARGE.\r\nNo <unk>\u00a0(new) e\u0301dema ."
    wanted = ("The", "Heart,", "is", "LARGE.", "No", "<unk>", "(new)", "\u00e9dema", ".")
    assert words.name == "space" and words.references(["", " \n"]) == [(), ()]
    assert words.reports([typed]) == words.references([typed]) == [wanted]
    # what R2Gen's family has stored: cut, cleaned, rare words unknown; it is not cleaned anew
    stored = R2Gen("iu_xray", 9, vocabulary={"the", "is", "."}).references(["The heart 2. is. No"])
    assert words.reports([" ".join(stored[0])]) == stored
    assert R2Gen("iu_xray").reports([" ".join(stored[0])]) != stored


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: build_tokenization("r3gen"), "unknown tokenization 'r3gen': choose one of r2gen"),
        (lambda: build_tokenization("r2gen", dataset="nih"), "no cleaning for 'nih'; choose iu_"),
        (lambda: R2Gen(max_seq_length=1), "max_seq_length is 1; wanted 2 or more"),
    ],
)
def test_tokenizations_that_cannot_be(call, text) -> None:
    with pytest.raises(UserError, match=text):
        call()


@pytest.mark.skipif(shutil.which("java") is None, reason="Stanford's tokenizer is a Java program")
def test_ptb_by_java_is_pycocoevalcaps() -> None:
    texts = [
        "",
        "The heart isn't (much) enlarged; 1.5 cm.\nNo edema...",
        "",
        "Épanchement à gauche",
    ]
    texts += ["Легкие чистые.", 'Dr. Smith: "no" 50% of T-spine?', ""]
    theirs = PTBTokenizer().tokenize({i: [{"caption": text}] for i, text in enumerate(texts)})
    words = build_tokenization("ptb-java")
    assert words.name == "ptb (Java)"
    assert [" ".join(found) for found in words.reports(texts)] == [
        theirs[i][0] for i in range(len(texts))
    ]
    # a line of its own for each text, whatever it breaks lines with
    assert words.references(["a\rb", "c\u2028d", "e\x85f"]) == [("a", "b"), ("c", "d"), ("e", "f")]
    assert words.reports([]) == []
