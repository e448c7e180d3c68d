"""Tokenizations by name: R2Gen's, PTB made here or by a Java program, white space."""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from rrgclinical.common.errors import UserError
from rrgclinical.text import java
from rrgclinical.text.r2gen import (
    check_dataset,
    cut,
    decoded_tokens,
    r2gen_tokens,
    rare_as_unknown,
)
from rrgclinical.text.tokens import tokens

TOKENIZATIONS = ("r2gen", "ptb", "ptb-java", "space")

Words = list[tuple[str, ...]]


class Tokenization(Protocol):
    """Splits predictions and references into words."""

    @property
    def name(self) -> str:
        """The name in a table, settings included."""
        ...

    def reports(self, texts: Sequence[str]) -> Words:
        """Split predictions."""
        ...

    def references(self, texts: Sequence[str]) -> Words:
        """Split references."""
        ...


@dataclass(frozen=True)
class R2Gen:
    """R2Gen's cleaned words, stops kept (`rrgclinical.text.r2gen`)."""

    dataset: str = "mimic_cxr"
    """Cleaning: iu_xray or mimic_cxr."""
    max_seq_length: int | None = None
    """Cuts references to one less, predictions to it; published: 60 for IU X-Ray, 100 for MIMIC."""
    vocabulary: Container[str] | None = None
    """Words of references outside it are "<unk>" (`r2gen_vocabulary`)."""

    def __post_init__(self) -> None:
        """Check the settings."""
        check_dataset(self.dataset)
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
        return [cut(split(text, self.dataset), self.max_seq_length) for text in texts]

    def references(self, texts: Sequence[str]) -> Words:
        """Split references."""
        length = None if self.max_seq_length is None else self.max_seq_length - 1
        words = (cut(r2gen_tokens(text, self.dataset), length) for text in texts)
        return [rare_as_unknown(text, self.vocabulary) for text in words]


@dataclass(frozen=True)
class Ptb:
    """PTB-like words without punctuation; by nltk, or by the Java program of pycocoevalcap."""

    by_java: bool = False

    @property
    def name(self) -> str:
        """The name says which program made them."""
        return "ptb (Java)" if self.by_java else "ptb (nltk)"

    def reports(self, texts: Sequence[str]) -> Words:
        """Split predictions."""
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
    if name == "ptb-java" and (reason := java.missing(java.PTB_JAR)):
        raise UserError(f"tokenization ptb-java: {reason}")
    if name not in TOKENIZATIONS:
        raise UserError(f"unknown tokenization {name!r}: choose one of {', '.join(TOKENIZATIONS)}")
    return Space() if name == "space" else Ptb(by_java=name == "ptb-java")
