"""`RaTEExtractor`: reports in, RaTE-NER's entities with BioLORD's embeddings out.

B-, I- and O labels are decoded as the RaTEScore package does. It looks at the label of the next
token, that of the closing special token included, and remembers an end that it should have
forgotten; scores depend on both, so both are kept:

- an entity ends where the next label is not I-, whatever type I- names;
- I- without a B- before it begins an entity only for its successor: alone it is dropped;
- an entity still open at the end runs to the last token, unless an entity before it was closed by
  a B- that followed at once, and nothing was closed by O since: then it is dropped.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rrgclinical.cached import Cached
from rrgclinical.common.arguments import check_reports
from rrgclinical.entities import KINDS, Entities, EntityRow
from rrgclinical.inference import fingerprint, in_batches, place_network
from rrgclinical.ratescore.models import load_embedder, load_ner
from rrgclinical.rules.sentences import split_sentences

_log = logging.getLogger(__name__)

_NER_PIECES, _EMBEDDER_PIECES = 512, 30
_SHORTEST = 3
"""Characters of a sentence that the package still reads."""
_SPECIALS = ("[CLS]", "[SEP]")
# Sentences and phrases repeat much more than reports do: half of a rollout batch, or more.
_HELD = 50_000


class SentenceEntity(NamedTuple):
    """An entity of a sentence: characters [start, end), the package's text, kind."""

    start: int
    end: int
    text: str
    kind: int


class RaTEExtractor:
    """The entities RaTEScore compares and EditGRPO edits by, from the official weights.

    In fp32 they are those of the official package given the same sentences, except where two
    logits are equal but for rounding. Embeddings are unit rows: BioLORD's [CLS] state of the
    entity's text. Each distinct sentence and each distinct text is encoded once.
    """

    def __init__(
        self,
        ner: str | Path | None = None,
        embedder: str | Path | None = None,
        *,
        device: str | torch.device = "cpu",
        dtype: str = "fp32",
        token_budget: int | None = None,
    ) -> None:
        """Nothing is downloaded, unless a path is "hub".

        Args:
            ner: folder of Angelakeke/RaTE-NER-Deberta, or its hub name in the local cache.
            embedder: folder of FremyCompany/BioLORD-2023-C, likewise.
            device: where both networks run.
            dtype: "fp32" or "bf16".
            token_budget: largest padded batch in tokens; by default 1024 on a CPU, 32768 elsewhere.

        Raises:
            UserError: an option that cannot be, or a file that is absent or holds something else.
        """
        placement = place_network("extractor ratescore", device, dtype, token_budget)
        self.placement = placement
        self._ner, self._ner_tokens = load_ner(ner)
        self._embedder, self._embedder_tokens = load_embedder(embedder)
        for network in (self._ner, self._embedder):
            network.to(device=placement.device, dtype=placement.dtype)
        self._dtype, self.split = dtype, split_sentences
        names = self._ner.config.id2label
        self._labels = [names[index] for index in range(len(names))]
        self._warned = False
        self._read: Cached[list[SentenceEntity]] = Cached(self._read_sentences, capacity=_HELD)
        self._embedded: Cached[np.ndarray] = Cached(self._embed, capacity=_HELD)

    @property
    def width(self) -> int:
        return int(self._embedder.config.hidden_size)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of both networks, their vocabularies, code and options that change an entity."""
        vocabularies = [
            tokens.backend_tokenizer.to_str()
            for tokens in (self._ner_tokens, self._embedder_tokens)
        ]
        networks = (self._ner, self._embedder)
        return fingerprint(networks, self._dtype, vocabularies, reader=__file__)

    def extract(self, reports: Sequence[str]) -> Entities:
        """Entities ordered by report, then as the package lists them.

        A sentence under three characters is not read, as in the package.

        Raises:
            TypeError: a report is not a str.
            FloatingPointError: logits or states that are not finite.
        """
        texts = check_reports(reports)
        spans = [self.split(text) for text in texts]
        pieces = [
            (report, index, start, text[start:end])
            for report, text in enumerate(texts)
            for index, (start, end) in enumerate(spans[report])
            if end - start >= _SHORTEST
        ]
        read = self._read([piece for *_, piece in pieces])
        placed = [
            (report, index, begin, entity)
            for (report, index, begin, _), sentence in zip(pieces, read, strict=True)
            for entity in sentence
        ]
        vectors = self._embedded([entity.text for *_, entity in placed])
        rows = [
            EntityRow(
                report,
                index,
                begin + entity.start,
                begin + entity.end,
                entity.kind,
                _key(entity.text, entity.kind),
                entity.text,
                vector,
            )
            for (report, index, begin, entity), vector in zip(placed, vectors, strict=True)
        ]
        return Entities.from_rows(texts, spans, rows, self.width)

    @torch.inference_mode()
    def _read_sentences(self, sentences: list[str]) -> list[list[SentenceEntity]]:
        encoded = self._ner_tokens(
            sentences, max_length=_NER_PIECES, truncation=True, return_offsets_mapping=True
        )
        entities: list[list[SentenceEntity]] = [[] for _ in sentences]
        pad, ids_of = self._ner_tokens.pad_token_id, encoded["input_ids"]
        for rows, states in in_batches(self._ner, ids_of, pad, self.placement):
            logits = _finite(states.logits, "RaTE-NER's logits")
            labels = logits.argmax(-1).tolist()
            for row, ids in zip(rows, labels, strict=True):
                entities[row] = self._decode(sentences[row], encoded, row, ids)
        if not self._warned and any(len(ids) == _NER_PIECES for ids in encoded["input_ids"]):
            self._warned = True
            _log.warning(
                "a sentence fills the %d pieces that RaTE-NER reads; what follows in it goes "
                "unread, as in the official package (told once)",
                _NER_PIECES,
            )
        return entities

    def _decode(
        self, sentence: str, encoded: dict, row: int, label_ids: list[int]
    ) -> list[SentenceEntity]:
        tokens = self._ner_tokens.convert_ids_to_tokens(encoded["input_ids"][row])
        offsets = encoded["offset_mapping"][row]
        labels = [self._labels[index] for index in label_ids[: len(tokens)]]
        special = [token in _SPECIALS for token in tokens]
        entities = []
        for first, last, kind in decode_labels(labels, special):
            text = self._ner_tokens.convert_tokens_to_string(tokens[first : last + 1])
            span = _visible(sentence, offsets[first][0], offsets[last][1])
            entities.append(SentenceEntity(*span, text, KINDS.index(kind)))
        return entities

    @torch.inference_mode()
    def _embed(self, texts: list[str]) -> list[np.ndarray]:
        encoded = self._embedder_tokens(texts, max_length=_EMBEDDER_PIECES, truncation=True)
        out = torch.empty(len(texts), self.width)
        pad, ids = self._embedder_tokens.pad_token_id, encoded["input_ids"]
        for rows, states in in_batches(self._embedder, ids, pad, self.placement):
            first = _finite(states.last_hidden_state[:, 0], "BioLORD's states")
            out[rows] = nn.functional.normalize(first.float(), dim=1).cpu()
        # copies: a view would keep the array of the whole batch alive
        return [row.copy() for row in out.numpy()]


def _visible(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the spaces that SentencePiece counts to a token; one character at least."""
    piece = text[start:end]
    if piece.strip():
        end = start + len(piece.rstrip())
        start += len(piece) - len(piece.lstrip())
    elif start == end:
        start, end = (start, start + 1) if start < len(text) else (start - 1, start)
    return start, end


def _finite(values: Tensor, what: str) -> Tensor:
    if not values.isfinite().all():
        raise FloatingPointError(
            f"{what} are not finite: is the weight file damaged, or does the dtype overflow? "
            "use dtype fp32"
        )
    return values


def _key(text: str, kind: int) -> int:
    """Equal for equal text, whatever its case and white space, and equal kind; in every process."""
    canonical = f"{int(kind)} {' '.join(text.casefold().split())}"
    digest = hashlib.blake2b(canonical.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def decode_labels(labels: Sequence[str], special: Sequence[bool]) -> list[tuple[int, int, str]]:
    """(first token, last token, type) of each entity, last included, in the package's order.

    Args:
        labels: "B-TYPE", "I-TYPE" or "O" of every token, special tokens included.
        special: True at [CLS] and [SEP], which never hold an entity.
    """
    spans: list[tuple[int, int, str]] = []
    start: int | None = None
    remembers_end = False
    kind = ""
    for token, (label, following) in enumerate(pairwise(labels)):
        if special[token] or label == "O":
            continue
        begins, goes_on = label.startswith("B-"), following.startswith("I-")
        if begins:
            start, kind = token, label[2:]
        if goes_on:
            continue
        if start is not None:
            spans.append((start, token, kind))
        start, kind, remembers_end = token, label[2:], True
        if following == "O":
            start, remembers_end = None, False
    if start is not None and not remembers_end:
        spans.append((start, len(labels) - 2, kind))
    return spans
