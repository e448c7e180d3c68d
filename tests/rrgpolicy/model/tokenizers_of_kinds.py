"""Small tokenizers of each kind that a policy's may be, in memory, with the codec of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from rrgpolicy.model.codec import ReportCodec
from tests.rrgpolicy.model.common import REPORTS

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<start_of_image>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
BLANK = "\u2581"
SPARE = 3  # rows of the embedding behind the last token


def _marked(text: str) -> str:
    return text.replace(" ", BLANK)


@lru_cache(maxsize=1)
def _learned() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a BPE like SentencePiece's."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=250, show_progress=False)
    bpe.train_from_iterator(REPORTS * 5, trainer)
    model = json.loads(bpe.to_str())["model"]
    tokens = [*SPECIAL, *BYTES, BLANK, *sorted(model["vocab"], key=model["vocab"].get)]
    merges = [tuple(pair) for pair in model["merges"]]
    return {token: k for k, token in enumerate(dict.fromkeys(tokens))}, merges


def _bpe() -> Tokenizer:
    vocabulary, merges = _learned()
    model = models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    return Tokenizer(model)


def _of_parts(*last: Any) -> Any:
    parts = (decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse())
    return decoders.Sequence([*parts, *last])


def _gemma() -> Tokenizer:
    made = _bpe()
    made.normalizer = normalizers.Replace(" ", BLANK)
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = _of_parts()
    return made


def _llama2() -> Tokenizer:
    """As published."""
    made = _bpe()
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]
    )
    made.decoder = _of_parts(decoders.Strip(" ", 1, 0))
    return made


def _metaspace() -> Tokenizer:
    """As transformers makes Llama 2's, with its Unicode normalised."""
    made = _bpe()
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    made.decoder = _of_parts(decoders.Strip(" ", 1, 0))
    return made


def _unigram() -> Tokenizer:
    """Its pieces hold those of bytes, which it finds in a text that reads as one."""
    vocabulary = [*_learned()[0]]
    scores = [(t, 0.0 if t in (*SPECIAL, *BYTES) else -1.0 / len(t)) for t in vocabulary]
    made = Tokenizer(models.Unigram(scores, unk_id=1, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]
    )
    return made


def _byte_level() -> Tokenizer:
    """As GPT-2's and RoBERTa's, with a blank before each text, and Qwen's normaliser."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[*SPECIAL],
        show_progress=False,
    )
    made.train_from_iterator(REPORTS * 5, trainer)
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "gemma": _gemma,
    "llama2": _llama2,
    "metaspace": _metaspace,
    "unigram": _unigram,
    "byte_level": _byte_level,
}


def tokenizer_of(kind: str) -> Any:
    """A fast tokenizer of transformers around a fresh one of the kind."""
    made = KINDS[kind]()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    # As Qwen's: a block's marks are tokens of their own, and text.
    made.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "</think>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )


def codec_of(tokenizer: Any) -> ReportCodec:
    """The codec of a tokenizer, closed by its end of sequence."""
    end = tokenizer.eos_token_id
    special = tokenizer.convert_tokens_to_ids([*SPECIAL])
    return ReportCodec(tokenizer, [end], end, len(tokenizer) + SPARE, special)


@lru_cache(maxsize=8)
def kind_of(kind: str) -> tuple[Any, ReportCodec]:
    """A kind's tokenizer with its codec, made once."""
    tokenizer = tokenizer_of(kind)
    return tokenizer, codec_of(tokenizer)
