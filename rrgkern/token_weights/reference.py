"""TF-IDF weights, saliency carried between tokenizers, and character spans, in plain PyTorch."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor


def tfidf_weights_reference(
    token_ids: Tensor, offsets: Tensor, group_offsets: Tensor, logs: Tensor, alpha: float
) -> Tensor:
    """Compute weights 1 + alpha tf idf, [N] fp32 (DiTPO eq. 7 and 8).

    `logs` [S+1] fp64 holds ln(n): a logarithm of its own would differ from device to device.
    The product is rounded to fp32 before the 1 is added, in fp32.
    """
    device = token_ids.device
    lengths = offsets.diff()
    sequence = torch.arange(len(lengths), device=device).repeat_interleave(lengths)
    sizes = group_offsets.diff()
    group_of_sequence = torch.arange(len(sizes), device=device).repeat_interleave(sizes)

    # One row per distinct (sequence, token), then one per distinct (group, token).
    in_sequence, place, count = torch.unique(
        torch.stack([sequence, token_ids]), dim=1, return_inverse=True, return_counts=True
    )
    in_group = torch.stack([group_of_sequence[in_sequence[0]], in_sequence[1]])
    _, group_place, frequency = torch.unique(
        in_group, dim=1, return_inverse=True, return_counts=True
    )
    tf = count[place].double() / lengths[sequence].double()
    idf = logs[sizes[group_of_sequence[sequence]]] - logs[frequency[group_place[place]]]
    weights: Tensor = 1 + (alpha * (tf * idf)).float()
    return weights


def span_max_reference(
    saliency: Tensor,
    piece_spans: Tensor,
    piece_offsets: Tensor,
    token_spans: Tensor,
    token_offsets: Tensor,
) -> Tensor:
    """Find each token's largest saliency among pieces that share a character, [N] fp32."""
    result = saliency.new_zeros(len(token_spans))
    reports = zip(pairwise(token_offsets.tolist()), pairwise(piece_offsets.tolist()), strict=True)
    for tokens, pieces in reports:
        mine, theirs = slice(*tokens), slice(*pieces)
        start, end = token_spans[mine, None].unbind(-1)
        piece_start, piece_end = piece_spans[theirs].unbind(-1)
        shares = torch.maximum(start, piece_start) < torch.minimum(end, piece_end)
        if shares.shape[1]:
            best = saliency[theirs].expand_as(shares).masked_fill(~shares, -torch.inf).amax(1)
            result[mine] = torch.where(shares.any(1), best, 0.0)
    return result


def byte_level_spans_reference(
    token_ids: Tensor, offsets: Tensor, vocabulary_bytes: Tensor, vocabulary_offsets: Tensor
) -> Tensor:
    """Find each token's characters [first, last + 1) from its bytes, [N, 2] int32.

    A byte opens a character unless it may continue the one before (Unicode 15, table 3-7): so an
    ill-formed part is one character, exactly where a decoder that replaces writes one U+FFFD.
    """
    data, bounds = bytes(vocabulary_bytes.tolist()), vocabulary_offsets.tolist()
    spans = []
    for start, end in pairwise(offsets.tolist()):
        characters, wanted, low, high = 0, 0, 0x80, 0xBF
        for v in token_ids[start:end].tolist():
            first = -1
            for byte in data[bounds[v] : bounds[v + 1]]:
                if wanted and low <= byte <= high:
                    wanted, low, high = wanted - 1, 0x80, 0xBF
                else:
                    wanted, low, high = continuation(byte)
                    characters += 1
                if first < 0:
                    first = characters - 1
            spans.append((first if first >= 0 else characters, characters))
    return torch.tensor(spans, dtype=torch.int32, device=token_ids.device).reshape(-1, 2)


def continuation(byte: int) -> tuple[int, int, int]:
    """Count the bytes that may follow a first byte, and bound the next."""
    if 0xC2 <= byte <= 0xDF:
        return 1, 0x80, 0xBF
    if 0xE0 <= byte <= 0xEF:
        return 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
    if 0xF0 <= byte <= 0xF4:
        return 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
    return 0, 0x80, 0xBF
