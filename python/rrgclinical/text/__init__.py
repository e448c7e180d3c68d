"""Metrics of words: BLEU, ROUGE-L, CIDEr-D and METEOR, of a report and of a corpus."""

from __future__ import annotations

from rrgclinical.text.java import JavaError, meteor_statistics
from rrgclinical.text.scores import TextScores, cider, meteor, rouge_l, sentence_bleu, text_scores
from rrgclinical.text.statistics import meteor_of
from rrgclinical.text.tokenizations import (
    TOKENIZATIONS,
    R2Gen,
    Tokenization,
    build_tokenization,
    r2gen_tokens,
    r2gen_vocabulary,
)
from rrgclinical.text.tokens import common_words, count_ngrams, tokens

__all__ = [
    "TOKENIZATIONS",
    "JavaError",
    "R2Gen",
    "TextScores",
    "Tokenization",
    "build_tokenization",
    "cider",
    "common_words",
    "count_ngrams",
    "meteor",
    "meteor_of",
    "meteor_statistics",
    "r2gen_tokens",
    "r2gen_vocabulary",
    "rouge_l",
    "sentence_bleu",
    "text_scores",
    "tokens",
]
