"""BERTScore F1 (Zhang et al., 2020) by distilroberta-base, rescaled, as bert-score computes it.

States of the fifth layer, cosines between words, the best match of each without the special tokens'
weight (they can be matched all the same), rescaled by the package's baseline for English. A text
without words has a raw score of 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, RobertaConfig, RobertaModel

from rrgclinical.cached import Cached
from rrgclinical.common.arguments import check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.inference import length_sorted, padded_rows, place_network
from rrgclinical.progress_bars import no_key_tables, no_progress_bars

LAYER = 5
BASELINE = 0.8473319
"""F1 of layer 5 in bert_score/rescale_baseline/en/distilroberta-base.tsv."""
# References and reports whose states are kept: about 300 KB each, one vector a token.
KEPT, RECENT = 4096, 1024
# untyped: with the report it gives two
_MODEL: Any = RobertaModel
_ORIGIN = "distilbert/distilroberta-base"


class BertScore:
    """BERTScore from a folder of distilroberta-base, each distinct text read once.

    Over calls too the latest `KEPT` references and `RECENT` reports are; `results` counts what is
    read of the references.
    """

    def __init__(
        self,
        weights: str | Path,
        *,
        device: str | torch.device = "cpu",
        token_budget: int | None = None,
    ) -> None:
        """weights: folder with config, tokenizer and model; nothing is downloaded.

        Raises UserError for an option that cannot be, or a folder that lacks or holds other files.
        """
        placement = place_network("bertscore", device, "fp32", token_budget)
        self.device, self.token_budget = placement.device, placement.token_budget
        folder = Path(weights).expanduser()
        if not (folder / "config.json").is_file():
            raise UserError(f"bertscore: no config.json in {folder}; pass the folder of {_ORIGIN}")
        try:
            config = RobertaConfig.from_pretrained(folder, local_files_only=True)
            # Random initial weights, where any are missing, must not move the caller's generator.
            with torch.random.fork_rng(devices=[]), no_progress_bars(), no_key_tables():
                network, report = _MODEL.from_pretrained(
                    folder,
                    local_files_only=True,
                    add_pooling_layer=False,
                    output_loading_info=True,
                    dtype=torch.float32,
                )
            self._tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, add_prefix_space=True
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = (str(error) or type(error).__name__).strip().splitlines()[0]
            raise UserError(
                f"bertscore: {folder} cannot be loaded ({reason}); wanted the folder of {_ORIGIN}"
            ) from error
        if lacking := sorted(report["missing_keys"]):
            raise UserError(
                f"bertscore: the checkpoint {folder} lacks {len(lacking)} tensors, {lacking[0]} "
                f"first; wanted {_ORIGIN}"
            )
        if config.num_hidden_layers < LAYER:
            raise UserError(
                f"bertscore: {folder} has {config.num_hidden_layers} layers; wanted {LAYER} or "
                f"more, as {_ORIGIN}"
            )
        # Two positions of RoBERTa lie before the first token's.
        self._limit = config.max_position_embeddings - 2
        network.encoder.layer = network.encoder.layer[:LAYER]
        self._network = network.to(self.device).eval().requires_grad_(False)
        self.results = Cached(self._states, capacity=KEPT)
        self._reports = Cached(self._states, capacity=RECENT)

    def read(self, references: Sequence[str]) -> None:
        """Read references ahead of `f1`. Raises TypeError for one not a str."""
        self.results(check_reports(references))

    def f1(self, reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Compute the rescaled F1 of each pair; float64 `[R]`, about 0 for unrelated texts.

        Raises TypeError for a report not a str, ValueError for other lengths.
        """
        ours, theirs = check_reports(reports), check_reports(references)
        if len(ours) != len(theirs):
            raise ValueError(f"{len(ours)} reports with {len(theirs)} references")
        states = dict(zip(theirs, self.results(theirs), strict=True))
        fresh = [text for text in dict.fromkeys(ours) if text not in states]
        states.update(zip(fresh, self._reports(fresh), strict=True))
        raw = [_raw_f1(states[x], states[y]) for x, y in zip(ours, theirs, strict=True)]
        return (np.array(raw, dtype=np.float64) - BASELINE) / (1.0 - BASELINE)

    @torch.inference_mode()
    def _states(self, texts: list[str]) -> list[Tensor]:
        """Unit states `[L, H]` of each text, special tokens first and last."""
        ids = [
            self._tokenizer(
                re.sub(" +", " ", text).strip(), truncation=True, max_length=self._limit
            )["input_ids"]
            for text in texts
        ]
        states: list[Tensor] = [torch.empty(0)] * len(texts)
        for rows in length_sorted([len(one) for one in ids], self.token_budget):
            padded, mask = padded_rows([ids[row] for row in rows], self._tokenizer.pad_token_id)
            out = self._network(padded.to(self.device), attention_mask=mask.to(self.device))
            hidden = torch.nn.functional.normalize(out.last_hidden_state, dim=-1).cpu()
            for place, row in enumerate(rows):
                # a view would keep the padded batch alive
                states[row] = hidden[place, : len(ids[row])].clone()
        return states


def _raw_f1(report: Tensor, reference: Tensor) -> float:
    """Before rescaling; 0 where either has special tokens only."""
    if len(report) <= 2 or len(reference) <= 2:
        return 0.0
    cosines = report @ reference.T
    precision = float(cosines.max(1).values[1:-1].mean())
    recall = float(cosines.max(0).values[1:-1].mean())
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
