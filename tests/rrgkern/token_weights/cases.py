"""Groups, saliencies and bytes as plain data, what draws them, and their tensors."""

from __future__ import annotations

import torch

from rrgkern import byte_vocabulary
from rrgkern.token_weights import byte_alphabet
from tests.rrgkern.many_cases import Cases, Choices

Group = tuple[tuple[int, ...], ...]
Span = tuple[int, int]
Aligned = tuple[tuple[tuple[Span, float], ...], tuple[Span, ...]]

TOKENS = [-3, -2, -1, 0, 1, 2, 3, 4, 2**40]


def some_group(choices: Choices) -> Group:
    """Up to four reports of up to seven tokens."""
    return tuple(
        tuple(choices.of(TOKENS) for _ in range(choices.below(8))) for _ in range(choices.below(5))
    )


groups = Cases(some_group, 33)


def group_tensors(batch: list[Group]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    flat = [report for group in batch for report in group]
    return (
        torch.tensor([token for report in flat for token in report], dtype=torch.int64),
        torch.tensor([0, *map(len, flat)]).cumsum(0),
        torch.tensor([0, *map(len, batch)]).cumsum(0),
    )


def some_alignment(choices: Choices) -> Aligned:
    """A report's pieces with their saliency and its tokens: they lie anywhere, in any order, and
    some hold no character."""

    def span() -> Span:
        start = choices.below(10)
        return start, start + choices.below(5)

    pieces = tuple((span(), choices.word(2) / 1024) for _ in range(choices.below(7)))
    return pieces, tuple(span() for _ in range(choices.below(7)))


alignments = Cases(some_alignment, 38)


def alignment_tensors(batch: list[Aligned]) -> tuple[torch.Tensor, ...]:
    flat_pieces = [piece for found, _ in batch for piece in found]
    flat_tokens = [token for _, tokens in batch for token in tokens]
    return (
        torch.tensor([value for _, value in flat_pieces], dtype=torch.float32),
        torch.tensor([span for span, _ in flat_pieces], dtype=torch.int32).reshape(-1, 2),
        torch.tensor([0, *(len(found) for found, _ in batch)]).cumsum(0),
        torch.tensor(flat_tokens, dtype=torch.int32).reshape(-1, 2),
        torch.tensor([0, *(len(tokens) for _, tokens in batch)]).cumsum(0),
    )


# Bytes at the edges of every row of Unicode's table of well-formed sequences.
EDGES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1]
EDGES += [0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
SPELLING = {byte: character for character, byte in byte_alphabet().items()}


def some_tokens(choices: Choices) -> tuple[bytes, ...]:
    """A report cut into tokens anywhere, inside characters too: wild bytes, or written text."""
    if choices.below(2):
        data = bytes(choices.of(EDGES) for _ in range(choices.below(13)))
    else:
        planes = (0x80, 0x800, 0x10000, 0x110000)
        characters = [chr(choices.word(3) % choices.of(planes)) for _ in range(choices.below(7))]
        data = "".join(characters).encode("utf-8", errors="surrogatepass")
    cuts = sorted(choices.below(len(data) + 1) for _ in range(choices.below(6)))
    return tuple(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))


token_reports = Cases(some_tokens, 36)


def token_tensors(reports: list[tuple[bytes, ...]]) -> tuple:
    """(ids, offsets, vocabulary): every token of every report has an id of its own."""
    tokens = [token for report in reports for token in report]
    vocabulary = byte_vocabulary(["".join(SPELLING[b] for b in token) for token in tokens])
    offsets = torch.tensor([0, *map(len, reports)]).cumsum(0)
    return torch.arange(len(tokens)), offsets, vocabulary
