"""RadGraph's network (DyGIE++, Wadden et al., 2019): spans, their labels, pairs of them.

The package embeds every span as [first word; last word; width], 8 spans a word, and runs its
layers on those. Here the first layer of each head is split: words are projected once, and a span
adds two rows of the projection and one for its width. The layer over pairs [a; b; a * b] is split
likewise, and a * b, the same for (a, b) and (b, a), is projected once for both. What is computed
is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear, relu

from rrgclinical.radgraph.archive import Shape

# Rows of the pair layer at a time: its input is 1556 numbers a pair.
_PAIRS = 4096


class Head(nn.Module):
    """Feed-forward layers with ReLU, then a linear layer."""

    def __init__(self, width: int, hidden: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden[0])
        self.rest = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(hidden))
        self.out = nn.Linear(hidden[-1], classes)

    def after_first(self, projected: Tensor) -> Tensor:
        """Scores, given what the first layer makes of the input, before its ReLU."""
        state = relu(projected)
        for layer in self.rest:
            state = relu(layer(state))
        return self.out(state)


class Spans(NamedTuple):
    """S spans of a batch, by report, first word, width; int64 [S] on the device.

    first, last: words, counted over the batch. width: last - first.
    """

    report: Tensor
    first: Tensor
    last: Tensor
    width: Tensor


class Predictions(NamedTuple):
    """Spans with a label, and pairs with one, in the official order.

    entities: [E, 4] int64, (report, first, last, label), words counted within the report.
    relations: [Q, 6] int64, (report, first, last, first of the other, last of it, label).
    """

    entities: Tensor
    relations: Tensor


class RadGraphNetwork(nn.Module):
    """Encoder and heads of one dataset of an archive."""

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        shape: Shape,
        *,
        entity_labels: int,
        relation_labels: int,
    ) -> None:
        """width: of the encoder's states; labels are counted with the empty one of entities."""
        super().__init__()
        self.encoder = encoder
        self.width = width
        span = 2 * width + shape.width_features
        self.span_width = nn.Embedding(shape.width_rows, shape.width_features)
        # The empty label has no row: its score is 0.
        self.ner = Head(span, shape.hidden, entity_labels - 1)
        self.pruner = Head(span, shape.hidden, 1)
        self.pair = Head(3 * span, shape.hidden, relation_labels)

    def embed_words(self, ids: Tensor, mask: Tensor, pieces: Tensor, offsets: Tensor) -> Tensor:
        """Embed words as the mean of their pieces, fp32 [T, H]; 0 without pieces.

        Args:
            ids, mask: [R, L] int64, padded pieces.
            pieces: [P] int64, where in R * L the states of the words stand, word after word.
            offsets: [T] int64, where in `pieces` each word begins.
        """
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        flat = states.reshape(-1, self.width).to(self.span_width.weight.dtype)
        if not len(pieces):
            return flat.new_zeros(len(offsets), self.width)
        return embedding_bag(pieces, flat, offsets, mode="mean")

    def forward(
        self, words: Tensor, lengths: list[int], max_span_width: int, spans_per_word: float
    ) -> Predictions:
        """Read a batch of reports.

        Args:
            words: [T, H], those of one report after those of another.
            lengths: words of each report, T in all.
            max_span_width: longest span that is looked at.
            spans_per_word: share of spans, by words, whose pairs are looked at.

        Raises:
            FloatingPointError: a score is not finite.
        """
        begins = torch.tensor([0, *lengths], device=words.device).cumsum(0)
        spans = _enumerate(lengths, begins, max_span_width)
        scores, mentions = self._span_scores(words, spans)
        labels = _best(scores)
        pruned, counts = _prune(mentions, spans, lengths, spans_per_word)
        candidates = Spans(*(part[pruned] for part in spans))
        i, j, relation, finite = self._pairs(words, candidates, mentions[pruned], counts)
        if not (scores.isfinite().all() & mentions.isfinite().all() & finite):
            raise FloatingPointError(
                "RadGraph's scores are not finite: are the weights damaged, or does the dtype "
                "overflow? use dtype fp32"
            )
        named = labels.nonzero().squeeze(1)
        entities = (*_place(spans, begins, named), labels[named])
        relations = (*_place(candidates, begins, i), *_place(candidates, begins, j)[1:], relation)
        return Predictions(torch.stack(entities, dim=1), torch.stack(relations, dim=1))

    def _span_scores(self, words: Tensor, spans: Spans) -> tuple[Tensor, Tensor]:
        """Entity scores [S, C - 1] and mention scores [S]."""
        scores = []
        for head in (self.ner, self.pruner):
            layer = head.first
            first, last, width = layer.weight.split(
                [self.width, self.width, self.span_width.embedding_dim], dim=1
            )
            # Every span adds one row of this, so the bias can stand in it.
            rows = linear(self.span_width.weight, width, layer.bias)
            projected = (words @ first.T)[spans.first] + (words @ last.T)[spans.last]
            scores.append(head.after_first(projected + rows[spans.width]))
        return scores[0], scores[1].squeeze(1)

    def _pairs(
        self, words: Tensor, spans: Spans, mentions: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pairs of kept spans of one report that have a relation: from, to, label, each [Q], from
        and to as rows of `spans`, in order; and whether every score was finite.
        """
        embedded = torch.cat(
            [words[spans.first], words[spans.last], self.span_width(spans.width)], dim=1
        )
        layer = self.pair.first
        one, other, both = layer.weight.split(embedded.shape[1], dim=1)
        one_rows = linear(embedded, one, layer.bias)
        other_rows = embedded @ other.T
        pairs = [words.new_zeros(0, 3, dtype=torch.int64)]
        finite = words.new_ones((), dtype=torch.bool)
        for low, high in _upper_triangles(counts, words.device):
            product = (embedded[low] * embedded[high]) @ both.T
            bonus = (mentions[low] + mentions[high])[:, None]
            # Backwards the diagonal would come a second time.
            for i, j, counted in ((low, high, low <= high), (high, low, low < high)):
                scores = self.pair.after_first(one_rows[i] + other_rows[j] + product) + bonus
                finite &= scores.isfinite().all()
                label = _best(scores)
                rows = torch.stack([i, j, label - 1], dim=1)
                pairs.append(rows[(label > 0) & counted])
        rows = torch.cat(pairs)
        order = (rows[:, 0] * len(embedded) + rows[:, 1]).argsort()
        i, j, label = rows[order].unbind(1)
        return i, j, label, finite


def _enumerate(lengths: list[int], begins: Tensor, longest: int) -> Spans:
    """Every span of at most `longest` words, by first word, then by width."""
    device = begins.device
    report = torch.arange(len(lengths), device=device).repeat_interleave(begins.diff())
    word = torch.arange(len(report), device=device)
    room = begins[1:][report] - word
    first, width = (torch.arange(longest, device=device) < room[:, None]).nonzero(as_tuple=True)
    return Spans(report[first], first, first + width, width)


def _place(spans: Spans, begins: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(report, first, last) of spans, words counted within the report."""
    report = spans.report[rows]
    return report, spans.first[rows] - begins[report], spans.last[rows] - begins[report]


def _best(scores: Tensor) -> Tensor:
    """[N] int64: 0 where no score is above 0, else 1 + the best column."""
    return torch.cat([scores.new_zeros(len(scores), 1), scores], dim=1).max(dim=1).indices


def _prune(
    mentions: Tensor, spans: Spans, lengths: list[int], spans_per_word: float
) -> tuple[Tensor, list[int]]:
    """The spans whose mention scores are highest, in order of position, and how many a report."""
    # In fp32 like the package, which decides whether a product such as 0.4 * 5 rounds up.
    limits = (torch.tensor(lengths, dtype=torch.float32) * spans_per_word).ceil().long().tolist()
    sizes = spans.report.bincount(minlength=len(lengths)).tolist()
    chosen, counts, begin = [], [], 0
    for size, limit in zip(sizes, limits, strict=True):
        count = min(size, max(limit, 1))
        best = mentions[begin : begin + size].topk(count).indices
        chosen.append(best.sort().values + begin)
        counts.append(count)
        begin += size
    return torch.cat(chosen), counts


def _upper_triangles(counts: list[int], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows (i, j), i <= j, of every pair within a report, at most `_PAIRS` at a time."""
    begins = [0, *accumulate(counts)]
    pairs = [
        torch.triu_indices(count, count, device=device) + begin
        for count, begin in zip(counts, begins, strict=False)
    ]
    i, j = torch.cat(pairs, dim=1)
    return zip(i.split(_PAIRS), j.split(_PAIRS), strict=True)
