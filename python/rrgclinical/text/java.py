"""The Java programs that pycocoevalcap carries: Stanford's PTB tokenizer and METEOR 1.5.

Each call is one process, which gets all texts on its standard input and ends; one that hangs is
ended after `timeout` seconds. Command lines are pycocoevalcap's, with UTF-8 whatever the locale.
"""

from __future__ import annotations

import shutil
import subprocess
import unicodedata
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

PTB_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"
METEOR_JAR = "meteor/meteor-1.5.jar"
TIMEOUT = 600.0
"""Seconds that a program gets; METEOR reads its paraphrases for about ten of them."""

# What pycocoevalcap drops. Brackets come in lower case and stay.
_PUNCTUATION = {"", *"'`.?!,:-;", "''", "``", "--", "...", "-LRB-", "-RRB-", "-LCB-", "-RCB-"}
_SEPARATOR = "|||"
_STATISTICS = 23


class JavaError(RuntimeError):
    """A program that cannot run, failed, or took too long; one line that says why."""


def program(jar: str) -> str:
    """Find a program of pycocoevalcap; raises JavaError, which says why it cannot run here."""
    if shutil.which("java") is None:
        raise JavaError(f"{Path(jar).stem} is a Java program, and there is no java on the PATH")
    if not (path := _package() / jar).is_file():
        raise JavaError(f"{path} is missing; install pycocoevalcap anew")
    return str(path)


def ptb_tokens(texts: Sequence[str], *, timeout: float = TIMEOUT) -> list[tuple[str, ...]]:
    """Split texts (composed first) as pycocoevalcap's PTBTokenizer: lower case, no punctuation.

    Raises JavaError.
    """
    if not len(texts):
        return []
    lines = [" ".join(unicodedata.normalize("NFC", text).splitlines()) for text in texts]
    arguments = ["-cp", program(PTB_JAR), "edu.stanford.nlp.process.PTBTokenizer"]
    arguments += ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    answers = _run(PTB_JAR, arguments, lines, timeout)
    return [tuple(word for word in line.split(" ") if word not in _PUNCTUATION) for line in answers]


def meteor_statistics(
    reports: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    *,
    timeout: float = TIMEOUT,
) -> np.ndarray:
    """Compute METEOR 1.5's statistics of each report against its closest reference: [R, 23].

    reports are words, references words of each reference of a report. English, normalised. The
    one chunk of a pair that matches whole is 0, as the program counts it when it adds pairs up.
    Raises JavaError.
    """
    if not len(reports):
        return np.zeros((0, _STATISTICS))
    lines = []
    for report, choices in zip(reports, references, strict=True):
        parts = [" ".join(words).replace(_SEPARATOR, "") for words in (*choices, report)]
        lines.append(f" {_SEPARATOR} ".join(["SCORE", *parts]))
    arguments = ["-Xmx2G", "-jar", program(METEOR_JAR), "-", "-", "-stdio", "-l", "en", "-norm"]
    answers = _run(METEOR_JAR, arguments, lines, timeout)
    try:
        statistics = np.array([line.split() for line in answers], dtype=np.float64)
    except ValueError as error:
        raise JavaError(f"METEOR answered {answers[0]!r}; wanted numbers") from error
    if statistics.shape[1:] != (_STATISTICS,):
        raise JavaError(f"METEOR answered {answers[0]!r}; wanted {_STATISTICS} numbers")
    words, chunks, matched = statistics[:, 0:2], statistics[:, 20], statistics[:, 21:23]
    chunks[(chunks == 1) & (matched == words).all(1)] = 0.0
    return statistics


def _package() -> Path:
    spec = find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise JavaError("pycocoevalcap is not installed: pip install 'rrgkern[meteor]'")
    return Path(next(iter(spec.submodule_search_locations)))


def _run(jar: str, arguments: list[str], lines: list[str], timeout: float) -> list[str]:
    """One line of output for each of input."""
    name = Path(jar).stem
    try:
        finished = subprocess.run(
            ["java", "-Dfile.encoding=UTF-8", *arguments],
            input="\n".join(lines) + "\n",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"{name} gave no answer in {timeout:g} s and was ended") from error
    answers = finished.stdout.split("\n")[:-1]
    if finished.returncode or len(answers) != len(lines):
        last = (finished.stderr.strip().splitlines() or ["silent"])[-1]
        raise JavaError(
            f"{name} ended with {finished.returncode} after {len(answers)} of {len(lines)} texts "
            f"({last})"
        )
    return answers
