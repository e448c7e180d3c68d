"""RadCliQ-v1 (Yu et al., 2023): a linear model of four metrics, fitted to radiologists' errors.

Its numbers are those of CXRMetric/radcliq-v1.pkl in rajpurkarlab/CXR-Report-Metric, its parts as in
CXRMetric/run_eval.py there: RadGraph's mean of entity and relation F1 (of the model `radgraph`, not
`radgraph-xl`), BERTScore of distilroberta-base without idf (that repository's USE_IDF), and the
cosine of CheXbert's [CLS] states. BLEU-2 weighs 4.3e-12 and is left out: it cannot move a score by
more than 1e-11. The value estimates errors: lower is better. Leaderboards print 1 / RadCliQ-v1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, RobertaConfig, RobertaModel

from rrgclinical.cached import Cached
from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.common.arguments import check_pairs, check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.inference import in_batches, place_network
from rrgclinical.progress_bars import no_progress_bars
from rrgclinical.radgraph import Graph, RadGraph

# RadGraph, BERTScore, embeddings: mean and scale of the fit, and the weights.
_MEAN = np.array([0.5379231241355762, 0.6175725628125001, 0.7647942121140658])
_SCALE = np.array([0.3028258411486429, 0.22430938459304575, 0.2539439110169773])
_WEIGHT = np.array([-0.37708368261038905, -0.37030009974480316, -0.25261621789593225])
_INTERCEPT = 2.466552561323256e-10


class RadCliQParts(NamedTuple):
    """Values of each pair, float64 `[R]`: higher is better in all three."""

    radgraph: np.ndarray
    bertscore: np.ndarray
    embedding: np.ndarray


def radcliq_v1(parts: RadCliQParts) -> np.ndarray:
    """Combine the parts into RadCliQ-v1; float64 `[R]`, lower is better."""
    return (np.stack(parts, axis=1) - _MEAN) / _SCALE @ _WEIGHT + _INTERCEPT


def entity_relation_f1(candidate: Graph, reference: Graph) -> float:
    """Compute the mean of entity F1 and relation F1 of two graphs.

    0 each where none is shared."""
    pairs = zip(_items(candidate), _items(reference), strict=True)
    return (
        sum(
            2 * len(one & other) / (len(one) + len(other)) if one & other else 0.0
            for one, other in pairs
        )
        / 2.0
    )


class RadCliQ:
    """RadCliQ-v1 of pairs of reports, with models that are loaded.

    References are read once and kept, as `BertScore` keeps them; `results` counts the texts whose
    states CheXbert computed.
    """

    def __init__(
        self, radgraph: RadGraph | Cached[Graph], chexbert: CheXbertLabeller, bertscore: BertScore
    ) -> None:
        """Published values are of the RadGraph model `radgraph`; another gives other values."""
        self.bertscore = bertscore
        self._graphs = radgraph if isinstance(radgraph, Cached) else Cached(radgraph.annotate)
        self.results: Cached[np.ndarray] = Cached(
            lambda texts: [row.copy() for row in chexbert.embed(texts).numpy()]
        )

    def read(self, references: Sequence[str]) -> None:
        """Read references ahead of `score`. Raises TypeError for one not a str."""
        texts = check_reports(references)
        self._graphs(texts, keep=True)
        self.results(texts, keep=True)
        self.bertscore.read(texts)

    def parts(self, reports: Sequence[str], references: Sequence[str]) -> RadCliQParts:
        """Measure each pair. TypeError names a report not a str; ValueError for other lengths."""
        ours, theirs = check_pairs(reports, references)
        if not ours:
            return RadCliQParts(np.zeros(0), np.zeros(0), np.zeros(0))
        other = np.stack(self.results(theirs, keep=True)).astype(np.float64)
        one = np.stack(self.results(ours)).astype(np.float64)
        norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        read = self._graphs(theirs, keep=True)
        pairs = zip(ours, theirs, self._graphs(ours), read, strict=True)
        # An empty report is read as the word "None".
        agreed = [entity_relation_f1(x, y) if a and b else 0.0 for a, b, x, y in pairs]
        return RadCliQParts(
            np.array(agreed, dtype=np.float64),
            self.bertscore.f1(ours, theirs),
            (one * other).sum(1) / norms,
        )

    def score(self, reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Compute RadCliQ-v1 of each pair; float64 `[R]`, lower is better. Raises as `parts`."""
        return radcliq_v1(self.parts(reports, references))


def _items(graph: Graph) -> tuple[set[tuple], set[tuple]]:
    """Distinct entities, and distinct relations between them."""
    keys = [(entity.tokens, entity.label) for entity in graph.entities]
    relations = {
        (key, keys[other], relation)
        for key, entity in zip(keys, graph.entities, strict=True)
        for relation, other in entity.relations
    }
    return set(keys), relations


LAYER = 5
BASELINE = 0.8473319
"""F1 of layer 5 in bert_score/rescale_baseline/en/distilroberta-base.tsv."""
# References and reports whose states are kept: about 300 KB each, one vector a token.
KEPT, RECENT = 4096, 1024
# untyped: with the report it gives two
_MODEL: Any = RobertaModel
_ORIGIN = "distilbert/distilroberta-base"


class BertScore:
    """BERTScore F1 (Zhang et al., 2020) from a folder of distilroberta-base, as bert-score has it.

    States of the fifth layer, cosines between words, the best match of each without the special
    tokens' weight (they can be matched all the same), rescaled by the package's baseline for
    English. A text without words has a raw score of 0. Each distinct text is read once.

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
        self.placement = place_network("bertscore", device, "fp32", token_budget)
        folder = Path(weights).expanduser()
        if not (folder / "config.json").is_file():
            raise UserError(f"bertscore: no config.json in {folder}; pass the folder of {_ORIGIN}")
        try:
            config = RobertaConfig.from_pretrained(folder, local_files_only=True)
            # Random initial weights, where any are missing, must not move the caller's generator.
            with torch.random.fork_rng(devices=[]), no_progress_bars(keys=False):
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
        self._network = network.to(self.placement.device).eval().requires_grad_(False)
        self.results = Cached(self._states, capacity=KEPT)
        self._reports = Cached(self._states, capacity=RECENT)

    def read(self, references: Sequence[str]) -> None:
        """Read references ahead of `f1`. Raises TypeError for one not a str."""
        self.results(check_reports(references))

    def f1(self, reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Compute the rescaled F1 of each pair; float64 `[R]`, about 0 for unrelated texts.

        Raises TypeError for a report not a str, ValueError for other lengths.
        """
        ours, theirs = check_pairs(reports, references)
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
        pad = self._tokenizer.pad_token_id
        for rows, out in in_batches(self._network, ids, pad, self.placement):
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
