"""Split reports into sentences, and embed them by BioLORD, each distinct one once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rrgclinical.cached import Cached
from rrgclinical.common.arguments import check_reports
from rrgclinical.inference import in_batches, place_network
from rrgclinical.ratescore.models import load_embedder
from rrgclinical.rules.sentences import split_sentences

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
    ) -> None:
        """embedder: folder of FremyCompany/BioLORD-2023-C, or "hub"; nothing else is downloaded.

        Raises UserError for an option that cannot be, or files that are absent or another model's.
        """
        self.placement = place_network("sdr", device, "fp32", token_budget)
        network, self._tokens = load_embedder(embedder)
        self._network = network.to(self.placement.device)
        self._embedded: Cached[np.ndarray] = Cached(self._embed, capacity=50_000)

    def read(self, reports: Sequence[str], *, keep: bool = False) -> SentenceSets:
        """Embed the sentences of reports; `keep` holds them for good, as of references.

        A report without words has none. Raises TypeError for a report not a str.
        """
        texts = [
            [text[a:b] for a, b in split_sentences(text) if text[a:b].strip()]
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
