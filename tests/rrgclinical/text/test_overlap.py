"""Rewards of words against other libraries and by hand."""

from __future__ import annotations

import os
import shutil
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
from rouge_score.rouge_scorer import RougeScorer

from rrgclinical.common.errors import UserError
from rrgclinical.severity import Severity
from rrgclinical.text import (
    JavaError,
    R2Gen,
    build_tokenization,
    cider,
    count_ngrams,
    meteor,
    meteor_statistics,
    r2gen_tokens,
    r2gen_vocabulary,
    rouge_l,
    sentence_bleu,
    text_scores,
    tokens,
)
from tests.rrgclinical.cases import cases, table

REPORTS = [
    "The heart is enlarged. No pleural effusion or pneumothorax is seen today.",
    "Lungs are clear, and the heart size is normal.",
    "Small left pleural effusion (new). There's edema.",
]
REFERENCES = [
    "The heart is mildly enlarged. No pleural effusion or pneumothorax is seen.",
    "The lungs are clear. Heart size is within normal limits.",
    "Small left pleural effusion. Mild pulmonary edema, unchanged.",
]
OURS = [" ".join(tokens(text)) for text in REPORTS]
TRUE = [" ".join(tokens(text)) for text in REFERENCES]


def test_tokens_are_lower_case_words_without_punctuation() -> None:
    found = tokens("Dr. Smith: no (acute) 1.5 cm\nopacity; isn't it? Right-sided.")
    assert " ".join(found) == "dr. smith no -lrb- acute -rrb- 1.5 cm opacity is n't it right-sided"
    assert tokens("") == tokens(" ... ") == tokens("?!") == ()


@pytest.mark.skipif(shutil.which("java") is None, reason="pycocoevalcap's tokenizer is in Java")
def test_tokens_are_those_of_pycocoevalcap() -> None:
    texts = [*REPORTS, *REFERENCES, *(sentence for sentence, _ in cases())]
    wanted = PTBTokenizer().tokenize({i: [{"caption": text}] for i, text in enumerate(texts)})
    equal = [" ".join(tokens(text)) == wanted[i][0] for i, text in enumerate(texts)]
    # they differ where a stop belongs to an abbreviation, or a space is lost after one
    assert np.mean(equal) > 0.97


def test_sentence_bleu_is_pycocoevalcaps() -> None:
    found = sentence_bleu(REPORTS, REFERENCES, 4)
    gts = {i: [text] for i, text in enumerate(TRUE)}
    res = {i: [text] for i, text in enumerate(OURS)}
    _, per_report = Bleu(4).compute_score(gts, res, verbose=0)
    np.testing.assert_array_equal(found, np.array(per_report).T)
    np.testing.assert_array_equal(sentence_bleu(REPORTS[1:], REFERENCES[1:], 2), found[1:, :2])


def test_reports_that_share_no_word_do_not_differ() -> None:
    """pycocoevalcap's smoothing gives them up to 1e-10, by their length."""
    values = sentence_bleu(["Edema.", "Edema seen there.", "."], ["No effusion."] * 3, 4)
    assert values.tolist() == [[0.0] * 4] * 3


def test_empty_texts() -> None:
    empty = ["", "...", ""]
    assert sentence_bleu(empty, REFERENCES, 4).tolist() == [[0.0] * 4] * 3
    assert rouge_l(empty, REFERENCES).tolist() == [0.0] * 3
    assert cider(empty, REFERENCES, Counter(), 3).tolist() == [0.0] * 3
    assert rouge_l(REPORTS, empty).tolist() == [0.0] * 3
    for metric in (rouge_l, lambda x, y: cider(x, y, Counter(), 3)):
        assert metric([], []).shape == (0,)
    assert sentence_bleu([], [], 2).shape == (0, 2)


@given(st.text("aZ09 _-.,'\n\t/", max_size=60), st.text("aZ09 _-.,'\n\t/", max_size=60))
def test_rouge_l_of_ascii_is_rouge_scores_own(report, reference) -> None:
    wanted = RougeScorer(["rougeL"], use_stemmer=False).score(reference, report)["rougeL"].fmeasure
    assert rouge_l([report], [reference])[0] == wanted


@pytest.mark.parametrize(("report", "reference", "shared", "words"), table("words outside ASCII"))
def test_rouge_l_of_words_outside_ascii(report, reference, shared, words) -> None:
    assert rouge_l([report], [reference])[0] == pytest.approx(2 * shared / sum(words))


def test_no_score_depends_on_how_an_accent_was_typed() -> None:
    reference = "Petit épanchement pleural à gauche, cœur élargi."
    typed = [unicodedata.normalize(form, reference) for form in ("NFC", "NFD")]
    assert typed[0] != typed[1]
    counts = count_ngrams(tokens(reference))
    scores = (lambda x, y: sentence_bleu(x, y)[:, 3], rouge_l, lambda x, y: cider(x, y, counts, 2))
    for score in scores:
        composed, decomposed = score(typed, [reference] * 2)
        assert composed == decomposed > 0


def test_cider_over_its_own_references_is_pycocoevalcaps() -> None:
    counts = Counter(gram for text in TRUE for gram in count_ngrams(text.split()))
    found = cider(REPORTS, REFERENCES, counts, 3)
    gts = {i: [text] for i, text in enumerate(TRUE)}
    res = {i: [text] for i, text in enumerate(OURS)}
    _, each = Cider().compute_score(gts, res)
    np.testing.assert_allclose(found, each, rtol=1e-12)
    # a report's value does not depend on its batch
    np.testing.assert_array_equal(cider(REPORTS[1:2], REFERENCES[1:2], counts, 3), found[1:2])
    assert found.min() > 0 and len(set(found.tolist())) == 3


@pytest.mark.gate
@pytest.mark.skipif(shutil.which("java") is None, reason="METEOR 1.5 is a Java program")
def test_meteor_is_the_program_of_pycocoevalcap() -> None:
    program = Meteor()
    gts, res = ({i: [text] for i, text in enumerate(texts)} for texts in (TRUE, OURS))
    _, each = program.compute_score(gts, res)
    program.meteor_p.communicate()
    # one start of the program: METEOR reads its paraphrases for seconds
    found = meteor([*REPORTS, "", "."], [*REFERENCES, *["effusion"] * 2])
    np.testing.assert_allclose(found[:3], each, rtol=1e-12)
    assert found[3:].tolist() == [0.0, 0.0] and meteor([], []).shape == (0,)


_cider = partial(cider, counts={}, documents=1)


@pytest.mark.parametrize("score", [sentence_bleu, rouge_l, meteor, _cider, Severity().judge])
@pytest.mark.parametrize(
    ("reports", "references", "told"),
    [
        ("Edema", ["Edema."] * 5, "reports is one str; wanted a sequence of str"),
        (["Edema."] * 5, "Edema", "references is one str; wanted a sequence of str"),
        ([None], ["Edema."], r"reports\[0\] is NoneType; wanted str"),
        (["Edema."], [b"Edema."], r"references\[0\] is bytes; wanted str"),
        (None, [], "reports is None; wanted a sequence of str"),
        (["Edema."], [], "1 reports and 0 references; wanted one for each"),
        ([], ["Edema."], "0 reports and 1 references; wanted one for each"),
    ],
)
def test_what_is_no_list_of_reports_is_refused(
    score: Callable[..., np.ndarray], reports: Any, references: Any, told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{told}$"):
        score(reports, references)


# A Java program that hangs, fails or says too little is an error with a reason, and ends.
@pytest.fixture
def java(tmp_path, monkeypatch):
    def install(script: str) -> None:
        program = tmp_path / "java"
        program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_one_that_hangs_is_ended(java, tmp_path) -> None:
    java("exec sleep 60")
    began = time.monotonic()
    with pytest.raises(JavaError, match=r"meteor-1.5 gave no answer in 3 s and was ended"):
        meteor_statistics([("a",)], [[("a",)]], timeout=3.0)
    assert time.monotonic() - began < 30
    process = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize(("script", "text"), table("failing programs"))
def test_one_that_fails_is_told(java, script, text) -> None:
    java(script)
    with pytest.raises(JavaError, match=text):
        meteor_statistics([("a",), ("b",)], [[("a",)], [("b",)]])
    scores = text_scores(["a", "b"], ["a", "b"])
    assert list(scores.missing) == ["meteor"]
    assert "\n" not in scores.missing["meteor"]
    with pytest.raises(UserError, match=f"METEOR: .*{text}"):
        meteor(["a", "b"], ["a", "b"])


def test_a_perfect_pair_has_no_chunk(java) -> None:
    """Only one whose words all match, of both texts, in one piece."""
    lengths = [(4, 4), (4, 5), (5, 4), (4, 4), (4, 4), (2, 3)]
    pieces = [(1, 4, 4), (1, 4, 4), (1, 4, 4), (2, 4, 4), (1, 4, 3), (1, 2, 3)]
    answers = [[*words, *[0] * 18, *rest] for words, rest in zip(lengths, pieces, strict=True)]
    lines = "; ".join(f"echo {' '.join(map(str, row))}" for row in answers)
    java(f"cat > /dev/null; {lines}")
    found = meteor_statistics([("a",)] * 6, [[("a",)]] * 6)
    assert found[:, 20].tolist() == [0, 1, 1, 2, 1, 0]
    assert np.array_equal(np.delete(found, 20, axis=1), np.delete(np.array(answers), 20, axis=1))


# R2Gen's words by hand, and PTB's against the Java program.
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
