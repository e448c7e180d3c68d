"""Time the token weights of one step of DEER.

64 prompts of eight reports of about 80 tokens."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import ByteVocabulary, byte_level_spans, span_max, tfidf_weights
from rrgkern.token_weights import reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROMPTS, GROUP, LENGTH = 64, 8, 80
REPORTS = PROMPTS * GROUP
VOCABULARY = 2000  # distinct tokens in reports; the size of the whole vocabulary does not matter

tfidf, largest, spans = (Bench("token_weights") for _ in range(3))


@tfidf.provider("eager")
def tfidf_by_counting(ids: Tensor, offsets: Tensor, group_offsets: Tensor) -> Tensor:
    """Counters per report and group, in Python."""
    tokens, weights = ids.tolist(), []
    reports = [tokens[a:b] for a, b in pairwise(offsets.tolist())]
    for first, last in pairwise(group_offsets.tolist()):
        counts = [Counter(report) for report in reports[first:last]]
        frequency = Counter(token for count in counts for token in count)
        for count, report in zip(counts, reports[first:last], strict=True):
            weights += [
                1 + 4 * count[t] / len(report) * math.log((last - first) / frequency[t])
                for t in report
            ]
    return torch.tensor(weights, device=ids.device)


@tfidf.provider("torch")
def tfidf_by_sorting(ids: Tensor, offsets: Tensor, group_offsets: Tensor) -> Tensor:
    logs = torch.arange(len(offsets), dtype=torch.float64, device=ids.device).log()
    return reference.tfidf_weights_reference(ids, offsets, group_offsets, logs, 4.0)


@tfidf.provider("rrgkern")
def tfidf_ours(ids: Tensor, offsets: Tensor, group_offsets: Tensor) -> Tensor:
    return tfidf_weights(ids, offsets, group_offsets)


@largest.provider("eager")
def span_max_by_pointers(
    saliency: Tensor, pieces: Tensor, piece_offsets: Tensor, tokens: Tensor, token_offsets: Tensor
) -> Tensor:
    """Two pointers over spans in rising order, in Python."""
    values, piece_spans, token_spans = saliency.tolist(), pieces.tolist(), tokens.tolist()
    result = []
    bounds = zip(pairwise(piece_offsets.tolist()), pairwise(token_offsets.tolist()), strict=True)
    for (first, last), (begin, stop) in bounds:
        piece = first
        for start, end in token_spans[begin:stop]:
            while piece < last and piece_spans[piece][1] <= start:
                piece += 1
            best, ahead = 0.0, piece
            while ahead < last and piece_spans[ahead][0] < end:
                best, ahead = max(best, values[ahead]), ahead + 1
            result.append(best)
    return torch.tensor(result, device=saliency.device)


@largest.provider("torch")
def span_max_by_masks(*arguments: Tensor) -> Tensor:
    return reference.span_max_reference(*arguments)


@largest.provider("rrgkern")
def span_max_ours(*arguments: Tensor) -> Tensor:
    return span_max(*arguments)


@spans.provider("eager")
def spans_in_python(ids: Tensor, offsets: Tensor, vocabulary: ByteVocabulary) -> Tensor:
    return reference.byte_level_spans_reference(ids, offsets, *vocabulary)


@spans.provider("rrgkern")
def spans_ours(ids: Tensor, offsets: Tensor, vocabulary: ByteVocabulary) -> Tensor:
    return byte_level_spans(ids, offsets, vocabulary)


def lengths(count: int, mean: int, generator: torch.Generator) -> Tensor:
    sizes = torch.randint(mean // 2, mean + mean // 2, (count,), generator=generator)
    return torch.nn.functional.pad(sizes.cumsum(0), (1, 0))


def running_spans(offsets: Tensor, generator: torch.Generator) -> Tensor:
    """Spans of four to eight characters end to end, from 0 in every report."""
    widths = torch.randint(4, 9, (int(offsets[-1]),), generator=generator)
    ends = widths.cumsum(0)
    before = torch.nn.functional.pad(ends, (1, 0))[offsets[:-1]]
    ends = ends - before.repeat_interleave(offsets.diff())
    return torch.stack([ends - widths, ends], 1).int()


def test_tfidf(benchmark):
    def make_inputs(seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        offsets = lengths(REPORTS, LENGTH, generator)
        ids = torch.randint(0, VOCABULARY, (int(offsets[-1]),), generator=generator)
        groups = torch.arange(PROMPTS + 1) * GROUP
        return tuple(tensor.to(DEVICE) for tensor in (ids, offsets, groups))

    compare(tfidf, benchmark, make_inputs, "tfidf", bytes_each=12)


def test_span_max(benchmark):
    def make_inputs(seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        pieces, tokens = (lengths(REPORTS, LENGTH, generator) for _ in range(2))
        arguments = (
            torch.rand(int(pieces[-1]), generator=generator),
            running_spans(pieces, generator),
            pieces,
            running_spans(tokens, generator),
            tokens,
        )
        return tuple(tensor.to(DEVICE) for tensor in arguments)

    compare(largest, benchmark, make_inputs, "span max", bytes_each=24)


def test_byte_level_spans(benchmark):
    def make_inputs(seed: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        offsets = lengths(REPORTS, LENGTH, generator)
        ids = torch.randint(0, VOCABULARY, (int(offsets[-1]),), generator=generator)
        bounds = lengths(VOCABULARY, 6, generator)
        letters = torch.randint(97, 123, (int(bounds[-1]),), generator=generator).to(torch.uint8)
        vocabulary = ByteVocabulary(letters.to(DEVICE), bounds.to(DEVICE))
        return ids.to(DEVICE), offsets.to(DEVICE), vocabulary

    compare(spans, benchmark, make_inputs, "byte-level spans", bytes_each=22)


def compare(bench: Bench, benchmark: Any, make_inputs: Any, case: str, bytes_each: int) -> None:
    bench.compare(
        benchmark,
        make_inputs,
        shape={"reports": REPORTS, "group": GROUP, "tokens": LENGTH},
        dtype=torch.int64,
        case=case,
        bytes_moved=bytes_each * REPORTS * LENGTH,
    )
