"""Split reports into sentences, and embed them by BioLORD, each distinct one once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rrgclinical.cached import Cached
from rrgclinical.common.arguments import check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.inference import in_batches, place_network
from rrgclinical.ratescore.models import load_embedder
from rrgclinical.rules.sentences import split_sentences

Splitter = Callable[[str], list[tuple[int, int]]]

SPLITTERS = ("rules", "pyrush")


def splitter(name: str) -> Splitter:
    """text -> (start, end) of its sentences, without outer white space.

    "rules" is this project's own and needs nothing. "pyrush" is medspacy's PyRuSH, which the
    RaTEScore package calls (about 14 ms a report): wanted for values equal to the package's, and
    only where medspacy is installed.

    Raises:
        UserError: another name, or medspacy is not there.
    """
    if name == "rules":
        return split_sentences
    if name == "pyrush":
        return _pyrush()
    raise UserError(f"extractor ratescore: sentences {name!r}; choose {' or '.join(SPLITTERS)}")


def _pyrush() -> Splitter:
    try:
        import medspacy
    except ImportError as error:
        raise UserError(
            f"extractor ratescore: sentences=pyrush needs medspacy ({error}); it wants NumPy 1 and "
            "an environment of its own, or use sentences=rules"
        ) from error
    read = medspacy.load(medspacy_enable=["medspacy_pyrush"])

    def split(text: str) -> list[tuple[int, int]]:
        spans = []
        for sentence in read(text).sents:
            piece = text[sentence.start_char : sentence.end_char]
            stripped = piece.strip()
            if stripped:
                start = sentence.start_char + len(piece) - len(piece.lstrip())
                spans.append((start, start + len(stripped)))
        return spans

    return split


PIECES = 128
"""Word pieces of a sentence that are read; RaTEScore reads 30 of a phrase."""


class SentenceSets(NamedTuple):
    """Sentences of R reports, in order.

    offsets: int64 `[R + 1]`, where each report's begin. vectors: float32 `[S, H]`, unit rows.
    """

    offsets: np.ndarray
    vectors: np.ndarray


class SentenceEmbedder:
    """Embeds the sentences of reports: unit [CLS] states, as RaTEScore takes them of phrases."""

    def __init__(
        self,
        embedder: str | Path | None = None,
        *,
        device: str | torch.device = "cpu",
        token_budget: int | None = None,
        sentences: str = "rules",
    ) -> None:
        """embedder: folder of FremyCompany/BioLORD-2023-C, or "hub"; nothing else is downloaded.

        Raises UserError for an option that cannot be, or files that are absent or another model's.
        """
        self.placement = place_network("sdr", device, "fp32", token_budget)
        self.split = splitter(sentences)
        network, self._tokens = load_embedder(embedder)
        self._network = network.to(self.placement.device)
        self._embedded: Cached[np.ndarray] = Cached(self._embed, capacity=50_000)

    def read(self, reports: Sequence[str], *, keep: bool = False) -> SentenceSets:
        """Embed the sentences of reports; `keep` holds them for good, as of references.

        A report without words has none. Raises TypeError for a report not a str.
        """
        texts = [
            [text[a:b] for a, b in self.split(text) if text[a:b].strip()]
            for text in check_reports(reports)
        ]
        flat = [sentence for own in texts for sentence in own]
        vectors = self._embedded(flat, keep=keep)
        width = self._network.config.hidden_size
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return SentenceSets(offsets, np.array(vectors, np.float32).reshape(len(flat), width))

    @torch.inference_mode()
    def _embed(self, texts: list[str]) -> list[np.ndarray]:
        ids = self._tokens(texts, max_length=PIECES, truncation=True)["input_ids"]
        rows: list[np.ndarray] = [np.zeros(0)] * len(texts)
        pad = self._tokens.pad_token_id
        for places, out in in_batches(self._network, ids, pad, self.placement):
            states = torch.nn.functional.normalize(out.last_hidden_state[:, 0], dim=1).cpu().numpy()
            for row, place in enumerate(places):
                rows[place] = states[row].copy()
        return rows
