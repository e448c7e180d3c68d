"""`CheXbertLabeller`: reports in, class ids out, in the order given."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig

from rrgclinical.chexbert import pieces as tokens
from rrgclinical.chexbert.checkpoint import CLASSES, load_network
from rrgclinical.common.arguments import check_reports
from rrgclinical.inference import fingerprint, length_sorted, place_network
from rrgclinical.labels import OBSERVATIONS, ClassId

_log = logging.getLogger(__name__)


_PRESENT = torch.arange(len(ClassId)) < torch.tensor(CLASSES)[:, None]


class CheXbertLabeller:
    """CheXbert (Smit et al., 2020) from the official weight file, in batches.

    In fp32 the labels are those of the official package, one report at a time; in bf16 a label
    whose two best logits are close may differ.
    """

    def __init__(
        self,
        weights: str | Path | None = None,
        tokenizer: str | Path | None = None,
        *,
        device: str | torch.device = "cpu",
        dtype: str = "fp32",
        token_budget: int | None = None,
        config: BertConfig | None = None,
    ) -> None:
        """Nothing is downloaded, unless `weights` is "hub".

        Args:
            weights: path of `chexbert.pth` (Hugging Face, StanfordAIMI/RRG_scorers), or "hub".
            tokenizer: folder with the vocabulary of bert-base-uncased, or its hub name where it
                lies in the local cache.
            device: where the network runs.
            dtype: "fp32" or "bf16" for the encoder; the heads are fp32 in both.
            token_budget: largest padded batch in tokens; by default 1024 on a CPU, 32768 elsewhere.
            config: encoder of another shape than bert-base, for tests.

        Raises:
            UserError: an option that cannot be, or a file that is absent or holds something else.
        """
        placement = place_network("labeller chexbert", device, dtype, token_budget)
        self.device, self.token_budget = placement.device, placement.token_budget
        shape = config or BertConfig()
        network = load_network(weights, shape)
        vocabulary = tokens.read_vocabulary(tokenizer, shape.vocab_size)
        if config is None:
            tokens.refuse_foreign(vocabulary)
        encoder: nn.Module = network.bert
        encoder.to(placement.dtype)
        self.network = network.to(self.device)
        self.tokenize = tokens.ReportTokenizer(vocabulary, shape.max_position_embeddings)
        self._settings = (dtype, sorted(vocabulary.items()))
        self._warned = False

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all that a label depends on: weights, vocabulary, dtype and code."""
        return fingerprint((self.network,), *self._settings, reader=__file__)

    def label(self, reports: Sequence[str]) -> np.ndarray:
        """Label reports: int8 `[R, 14]` class ids.

        Of one longer than CheXbert reads (512 word pieces) the end goes unread, told once. Raises
        TypeError for the first report that is not a str, FloatingPointError for logits that are
        not finite.
        """
        pieces, row = self._distinct(check_reports(reports))
        logits = self._logits(pieces)[row]
        labels = logits.argmax(-1).to(torch.int8).numpy()
        truncated = np.array([one.truncated for one in pieces], dtype=bool)[row]
        if truncated.any() and not self._warned:
            self._warned = True
            _log.warning(
                "%d of %d reports exceed the %d word pieces that CheXbert reads; what follows "
                "goes unread, as in the official package (told once)",
                truncated.sum(),
                len(truncated),
                self.tokenize.limit,
            )
        return labels

    def class_logits(self, reports: Sequence[str]) -> Tensor:
        """Compute fp32 logits [R, 14, 4] on the CPU; -inf for classes No Finding lacks."""
        pieces, row = self._distinct(check_reports(reports))
        return self._logits(pieces)[row]

    @torch.inference_mode()
    def embed(self, reports: Sequence[str]) -> Tensor:
        """Compute the state of [CLS] of each report, fp32 [R, H].

        It lies on the CPU (for RadCliQ).

        Raises as `label`.
        """
        pieces, row = self._distinct(check_reports(reports))
        out = torch.empty(len(pieces), self.network.bert.config.hidden_size)
        for rows in length_sorted([len(one.ids) for one in pieces], self.token_budget):
            ids, mask = tokens.pad([pieces[row] for row in rows], self.tokenize.pad, self.device)
            states = self.network.first_state(self.network.word_embeddings(ids), mask)
            out[rows] = states.float().cpu()
        if not out.isfinite().all():
            raise FloatingPointError(
                "CheXbert's states are not finite: is the weight file damaged?"
            )
        return out[row]

    def _distinct(self, texts: list[str]) -> tuple[list[tokens.Pieces], np.ndarray]:
        rows: dict[str, int] = {}
        place = [rows.setdefault(text, len(rows)) for text in texts]
        return self.tokenize(list(rows)), np.array(place, dtype=np.int64)

    @torch.inference_mode()
    def _logits(self, pieces: list[tokens.Pieces]) -> Tensor:
        heads = self.network.heads.weight
        out = heads.new_empty(len(pieces), len(OBSERVATIONS), len(ClassId))
        for rows in length_sorted([len(one.ids) for one in pieces], self.token_budget):
            ids, mask = tokens.pad([pieces[row] for row in rows], self.tokenize.pad, self.device)
            out[rows] = self.network(self.network.word_embeddings(ids), mask)
        logits = out.cpu()
        if not logits[:, _PRESENT].isfinite().all():
            raise FloatingPointError(
                "CheXbert's logits are not finite: is the weight file damaged, or does the dtype "
                "overflow? use dtype fp32"
            )
        return logits
