"""R2Gen's cleaned reports as white-space tokens, stops kept.

The mapping is that of `clean_report_iu_xray` and `clean_report_mimic_cxr` in cuhksz-nlp/R2Gen
(modules/tokenizers.py): papers that report R2Gen's figures score these words with pycocoevalcap,
without its PTB tokenizer. Its character class spans ":" to "[", so that "<", "=", ">" and "@" go
too, and the hyphen stays. A sentence that is empty leaves its stop.

References there are cut to max_seq_length - 1 words and predictions to max_seq_length (the one
token less is the mark of the beginning: modules/datasets.py, trainer.py), and a reference's word
that is too rare in training is "<unk>". Both are settings here, and off by default.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable

from rrgclinical.common.errors import UserError

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


def r2gen_tokens(report: str, dataset: str) -> tuple[str, ...]:
    """Split a report into R2Gen's tokens; `dataset` is "iu_xray" or "mimic_cxr".

    Never empty: a report without words is one stop.
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


def check_dataset(dataset: str) -> None:
    """Raise UserError where R2Gen has no cleaning for a data set of this name."""
    if dataset not in PUBLISHED_LENGTH:
        raise UserError(
            f"tokenization r2gen: no cleaning for {dataset!r}; "
            f"choose {' or '.join(PUBLISHED_LENGTH)}"
        )


def cut(words: tuple[str, ...], length: int | None) -> tuple[str, ...]:
    """Cut words to a length; None keeps them all."""
    return words if length is None else words[:length]


def rare_as_unknown(words: tuple[str, ...], vocabulary: Container[str] | None) -> tuple[str, ...]:
    """Write "<unk>" for words outside the vocabulary; None keeps them all."""
    if vocabulary is None:
        return words
    return tuple(word if word in vocabulary else UNKNOWN for word in words)


def _shorten(text: str, char: str, share: int) -> str:
    """Shorten each run of n characters to n / share of them, rounded up."""
    pattern = f"{re.escape(char)}{{2,}}"
    return re.sub(pattern, lambda run: char * -(-len(run[0]) // share), text)
