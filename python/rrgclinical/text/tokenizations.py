"""Tokenizations by name: R2Gen's, PTB made here or by a Java program, white space."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rrgclinical.common.errors import UserError
from rrgclinical.text import java
from rrgclinical.text.tokens import tokens

TOKENIZATIONS = ("r2gen", "ptb", "ptb-java", "space")

PUBLISHED_LENGTH = {"iu_xray": 60, "mimic_cxr": 100}
"""R2Gen's max_seq_length by data set."""
PUBLISHED_THRESHOLD = {"iu_xray": 3, "mimic_cxr": 10}
"""R2Gen's least number of a word in the training reports, by data set."""

UNKNOWN = "<unk>"
_UNKNOWN_WORD = re.compile(r"(?<!\S)<unk>(?!\S)")
_DROPPED = str.maketrans("", "", ".,?;*!%^&_+():[]{}<=>@\"'/\\")
# A replacement of two by one, repeated k times, leaves one of every 2 ** k.
_IU_RUNS = ((".", 8),)
_MIMIC_RUNS = (("_", 128), (" ", 64), (".", 256))
_NUMBERS = (
    ("1. ", ""),
    *((f". {n}. ", ". ") for n in range(2, 6)),
    *((f" {n}. ", ". ") for n in range(2, 6)),
)

Words = list[tuple[str, ...]]


class Tokenization(Protocol):
    """Splits predictions and references into words."""

    @property
    def name(self) -> str:
        """The name in a table, settings included."""
        ...

    def reports(self, texts: Sequence[str]) -> Words: ...

    def references(self, texts: Sequence[str]) -> Words: ...


@dataclass(frozen=True)
class R2Gen:
    """R2Gen's cleaned words, stops kept (`r2gen_tokens`).

    References there are cut to max_seq_length - 1 words and predictions to max_seq_length (the one
    token less is the mark of the beginning: modules/datasets.py, trainer.py), and a reference's
    word that is too rare in training is "<unk>". Both are settings here, and off by default.
    """

    dataset: str = "mimic_cxr"
    """Cleaning: iu_xray or mimic_cxr."""
    max_seq_length: int | None = None
    """Cuts references to one less, predictions to it; published: 60 for IU X-Ray, 100 for MIMIC."""
    vocabulary: Container[str] | None = None
    """Words of references outside it are "<unk>" (`r2gen_vocabulary`)."""

    def __post_init__(self) -> None:
        if self.dataset not in PUBLISHED_LENGTH:
            raise UserError(
                f"tokenization r2gen: no cleaning for {self.dataset!r}; "
                f"choose {' or '.join(PUBLISHED_LENGTH)}"
            )
        if self.max_seq_length is not None and self.max_seq_length < 2:
            raise UserError(
                f"tokenization r2gen: max_seq_length is {self.max_seq_length}; wanted 2 or more"
            )

    @property
    def name(self) -> str:
        """Such as "r2gen (mimic_cxr, max_seq_length 100)"."""
        parts = [self.dataset]
        if self.max_seq_length is not None:
            parts.append(f"max_seq_length {self.max_seq_length}")
        if self.vocabulary is not None:
            parts.append("rare words <unk>")
        return f"r2gen ({', '.join(parts)})"

    def reports(self, texts: Sequence[str]) -> Words:
        """Split predictions; with a vocabulary a word "<unk>" stays, as references have it."""
        split = r2gen_tokens if self.vocabulary is None else decoded_tokens
        return [split(text, self.dataset)[: self.max_seq_length] for text in texts]

    def references(self, texts: Sequence[str]) -> Words:
        length = None if self.max_seq_length is None else self.max_seq_length - 1
        split = [r2gen_tokens(text, self.dataset)[:length] for text in texts]
        if self.vocabulary is None:
            return split
        return [tuple(w if w in self.vocabulary else UNKNOWN for w in words) for words in split]


@dataclass(frozen=True)
class Ptb:
    """PTB-like words without punctuation; by nltk, or by the Java program of pycocoevalcap."""

    by_java: bool = False

    @property
    def name(self) -> str:
        return "ptb (Java)" if self.by_java else "ptb (nltk)"

    def reports(self, texts: Sequence[str]) -> Words:
        return java.ptb_tokens(texts) if self.by_java else [tokens(text) for text in texts]

    references = reports


@dataclass(frozen=True)
class Space:
    """Words between white space, as they stand: case and stops kept, nothing cleaned."""

    name: str = "space"

    def reports(self, texts: Sequence[str]) -> Words:
        """Split predictions; texts are composed (NFC), and nothing else is done to them."""
        return [tuple(unicodedata.normalize("NFC", text).split()) for text in texts]

    references = reports


def build_tokenization(
    name: str,
    *,
    dataset: str = "mimic_cxr",
    max_seq_length: int | None = None,
    vocabulary: Container[str] | None = None,
) -> Tokenization:
    """Build a tokenization: "r2gen", "ptb" (made here), "ptb-java" (pycocoevalcap's) or "space".

    The other arguments are `R2Gen`'s. Raises UserError for another name, and for "ptb-java" where
    the program cannot run, with the reason.
    """
    if name == "r2gen":
        return R2Gen(dataset, max_seq_length, vocabulary)
    if name == "ptb-java":
        try:
            java.program(java.PTB_JAR)
        except java.JavaError as error:
            raise UserError(f"tokenization ptb-java: {error}") from error
    if name not in TOKENIZATIONS:
        raise UserError(f"unknown tokenization {name!r}: choose one of {', '.join(TOKENIZATIONS)}")
    return Space() if name == "space" else Ptb(by_java=name == "ptb-java")


def r2gen_tokens(report: str, dataset: str) -> tuple[str, ...]:
    """Split a report into R2Gen's tokens; `dataset` is "iu_xray" or "mimic_cxr".

    Never empty: a report without words is one stop.

    The mapping is that of `clean_report_iu_xray` and `clean_report_mimic_cxr` in cuhksz-nlp/R2Gen
    (modules/tokenizers.py): papers that report R2Gen's figures score these words with
    pycocoevalcap, without its PTB tokenizer. Its character class spans ":" to "[", so that "<",
    "=", ">" and "@" go too, and the hyphen stays. A sentence that is empty leaves its stop.
    """
    text = unicodedata.normalize("NFC", report)
    if dataset == "mimic_cxr":
        text = text.replace("\n", " ")
    for char, share in _IU_RUNS if dataset == "iu_xray" else _MIMIC_RUNS:
        text = _shorten(text, char, share)
    for numbered, plain in _NUMBERS:
        text = text.replace(numbered, plain)
    words: list[str] = []
    for sentence in text.strip().lower().split(". "):
        words += [*sentence.translate(_DROPPED).split(), "."]
    return tuple(words)


def decoded_tokens(prediction: str, dataset: str) -> tuple[str, ...]:
    """Split a prediction as `r2gen_tokens`; a decoder's "<unk>" between white space stays."""
    # a noncharacter, which no report holds, goes through the cleaning
    words = r2gen_tokens(_UNKNOWN_WORD.sub("\ufdd0", prediction), dataset)
    return tuple(UNKNOWN if word == "\ufdd0" else word for word in words)


def r2gen_vocabulary(
    training: Iterable[str], dataset: str, threshold: int | None = None
) -> frozenset[str]:
    """Collect the words that training reports have `threshold` times or more.

    `threshold` is the published one where None.
    """
    counts: Counter[str] = Counter()
    for report in training:
        counts.update(r2gen_tokens(report, dataset))
    least = PUBLISHED_THRESHOLD[dataset] if threshold is None else threshold
    return frozenset(word for word, count in counts.items() if count >= least)


def _shorten(text: str, char: str, share: int) -> str:
    """Shorten each run of n characters to n / share of them, rounded up."""
    pattern = f"{re.escape(char)}{{2,}}"
    return re.sub(pattern, lambda run: char * -(-len(run[0]) // share), text)
