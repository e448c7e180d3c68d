"""RadGraph the long way: one report at a time, every span and every pair embedded in full."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear, relu
from transformers import AutoConfig, AutoModel, AutoTokenizer

from rrgclinical.radgraph.words import spelling, split_words

_ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
_WIDTH = "_endpoint_span_extractor._span_width_embedding.weight"

# How often a span gets a label, and a pair a relation, once calibrated.
_ENTITIES, _RELATIONS = 0.08, 0.4


class Reference:
    """weights.th and the encoder's folder; spans of at most `width` words, half as many kept."""

    def __init__(self, state: dict[str, Tensor], encoder: Path, dataset: str) -> None:
        self.state, self.dataset = state, dataset
        config = AutoConfig.from_pretrained(encoder)
        self.segment = config.max_position_embeddings
        with torch.random.fork_rng():
            self.encoder = AutoModel.from_config(config).eval()
        own = {k[len(_ENCODER) :]: v for k, v in state.items() if k.startswith(_ENCODER)}
        self.encoder.load_state_dict(own)
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.width = len(state[_WIDTH])

    def words(self, report: str) -> list[str]:
        return [word for word, _, _ in split_words(report, self.dataset)]

    @torch.no_grad()
    def embed(self, words: list[str]) -> Tensor:
        pieces = [
            self.tokenizer(spelling(word), add_special_tokens=False)["input_ids"] for word in words
        ]
        flat, room = [i for one in pieces for i in one], self.segment - 2
        cls, sep = [self.tokenizer.cls_token_id], [self.tokenizer.sep_token_id]
        if self.encoder.config.model_type == "modernbert":
            cls, sep = [], []
        parts = [[*cls, *flat[k : k + room], *sep] for k in range(0, len(flat), room)]
        states = self.joined([i for part in parts for i in part])
        rows, at = [], 1
        for one in pieces:
            own = states[at : at + len(one)]
            rows.append(own.mean(0) if len(own) else torch.zeros(states.shape[1]))
            at += len(one)
        return torch.stack(rows)

    def joined(self, sequence: list[int]) -> Tensor:
        """States of the folded sequence, unfolded by the package's rule."""
        width, size = self.segment, len(sequence)
        rows = [sequence[k : k + width] for k in range(0, size, width)]
        states = [self.encoder(torch.tensor([row])).last_hidden_state[0] for row in rows]
        if not states:
            return torch.zeros(0, self.encoder.config.hidden_size)
        if size <= width:
            return states[0]
        inner = torch.zeros(len(rows) * (width - 2) + 1, states[0].shape[1])
        for r, state in enumerate(states):
            middle = state[1 : width - 1]
            inner[r * (width - 2) : r * (width - 2) + len(middle)] = middle
        inner[size - 2 * len(rows)] = states[-1][-1]
        return torch.cat([states[0][:1], inner])[: size - 2 * (len(rows) - 1)]

    def spans(self, count: int) -> list[tuple[int, int]]:
        return [(a, b) for a in range(count) for b in range(a, min(count, a + self.width))]

    def head(self, layers: str, out: str, inputs: Tensor) -> Tensor:
        layer = 0
        while f"{layers}._linear_layers.{layer}.weight" in self.state:
            inputs = relu(self.linear(f"{layers}._linear_layers.{layer}", inputs))
            layer += 1
        return self.linear(out, inputs)

    def linear(self, name: str, inputs: Tensor) -> Tensor:
        return linear(inputs, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def scores(self, report: str) -> tuple[list[tuple[int, int]], Tensor, Tensor, Tensor]:
        """Spans, entity scores [S, C - 1], kept rows [K], pair scores [K, K, Q]."""
        words = self.embed(self.words(report))
        spans = self.spans(len(words))
        table = self.state[_WIDTH]
        embedded = torch.stack([torch.cat([words[a], words[b], table[b - a]]) for a, b in spans])
        ner = f"_ner._ner_scorers.{self.dataset}__ner_labels"
        entities = self.head(f"{ner}.0._module", f"{ner}.1._module", embedded)
        pruner = f"_relation._mention_pruners.{self.dataset}__relation_labels._scorer"
        mention = self.head(f"{pruner}.0._module", f"{pruner}.1._module", embedded)[:, 0]
        kept = mention.topk(math.ceil(len(words) / 2)).indices.sort().values
        top, bonus = embedded[kept], mention[kept]
        a, b = top[:, None].expand(-1, len(top), -1), top[None].expand(len(top), -1, -1)
        relation = f"{self.dataset}__relation_labels"
        pairs = self.head(
            f"_relation._relation_feedforwards.{relation}",
            f"_relation._relation_scorers.{relation}",
            torch.cat([a, b, a * b], dim=-1),
        )
        return spans, entities, kept, pairs + (bonus[:, None] + bonus)[..., None]

    def annotate(self, report: str, ner: list[str], relations: list[str]) -> dict:
        """The package's annotation of a report that has a word."""
        words = self.words(report)
        spans, scores, kept, pairs = self.scores(report)
        numbers: dict[tuple[int, int], str] = {}
        entities: dict[str, dict] = {}
        for (a, b), row in zip(spans, scores, strict=True):
            if row.max() > 0:
                numbers[a, b] = str(len(numbers) + 1)
                entities[numbers[a, b]] = {
                    "tokens": " ".join(words[a : b + 1]),
                    "label": ner[1 + int(row.argmax())],
                    "start_ix": a,
                    "end_ix": b,
                    "relations": [],
                }
        for i, one in enumerate(kept.tolist()):
            for j, other in enumerate(kept.tolist()):
                if pairs[i, j].max() > 0 and {spans[one], spans[other]} <= numbers.keys():
                    label = relations[int(pairs[i, j].argmax())]
                    entity = entities[numbers[spans[one]]]
                    entity["relations"].append([label, numbers[spans[other]]])
        return {
            "text": " ".join(words),
            "entities": entities,
            "data_source": None,
            "data_split": "inference",
        }


def calibrate(state: dict[str, Tensor], encoder: Path, dataset: str, reports: list[str]) -> None:
    """Shift the output biases so that a set share of spans and pairs has each label above 0."""
    reader = Reference(state, encoder, dataset)
    found = [reader.scores(report) for report in reports]
    for name, scores, share in (
        (
            f"_ner._ner_scorers.{dataset}__ner_labels.1._module",
            [one[1] for one in found],
            _ENTITIES,
        ),
        (
            f"_relation._relation_scorers.{dataset}__relation_labels",
            [one[3].flatten(0, 1) for one in found],
            _RELATIONS,
        ),
    ):
        rows = torch.cat(scores)
        # The labels above 0 overlap, so the share of spans with any is a little less.
        level = 1 - share / rows.shape[1]
        state[f"{name}.bias"] -= rows.quantile(level, dim=0)
