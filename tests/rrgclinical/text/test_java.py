"""A Java program that hangs, fails or says too little is an error with a reason, and ends."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.text import (
    JavaError,
    build_tokenization,
    meteor,
    meteor_statistics,
    ptb_tokens,
    text_scores,
)


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Put a shell script in the place of java."""

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


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo one >&2; echo no heap >&2; exit 3", r"ended with 3 after 0 of 2 texts \(no heap\)"),
        ("cat > /dev/null", r"ended with 0 after 0 of 2 texts \(silent\)"),
        ("cat > /dev/null; echo a; echo b; echo c", "after 3 of 2 texts"),
        ("cat > /dev/null; echo a; echo b", "METEOR answered 'a'; wanted numbers"),
        ("cat > /dev/null; echo 1 2; echo 3", "METEOR answered '1 2'; wanted numbers"),
        ("cat > /dev/null; echo 1 2; echo 3 4", "METEOR answered '1 2'; wanted 23 numbers"),
    ],
)
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


def test_a_tokenizer_that_fails_is_told(java) -> None:
    java("exit 1")
    with pytest.raises(JavaError, match=r"stanford-corenlp-3.4.1 ended with 1 .*\(silent\)"):
        ptb_tokens(["a"])
    with pytest.raises(UserError, match=r"tokenization ptb \(Java\): stanford-corenlp-3.4.1 ended"):
        text_scores(["a"], ["a"], tokenization=build_tokenization("ptb-java"))
