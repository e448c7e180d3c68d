"""One sampled token per row, from draws that depend on nothing but seed and place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """Draw fp64 [rows, count] in [0, 1); row r is Philox of key `seeds[r]`.

    Draw t of a seed is the same whatever the other seeds and `count` are. The top 53 bits of the
    raw words are used, not a distribution of NumPy's, whose algorithm may change.
    """
    raw = np.stack([np.random.Philox(key=seed).random_raw(count) for seed in seeds])
    return torch.from_numpy((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def sample(
    logits: Tensor,
    draws: Tensor,
    *,
    temperature: float,
    top_p: float = 1.0,
    never: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling.

    Args:
        logits: [rows, V].
        draws: fp64 [rows] in [0, 1).
        temperature: positive; divides the logits.
        top_p: below 1, only the smallest set of tokens whose probability reaches it takes part.
        never: int64 [n], ids that take no part.

    Returns:
        ids int64 [rows], and their log-probs fp32 [rows] in the softmax of logits / temperature,
        as a trainer computes them: ids of `never` keep their share of it. With top_p < 1 they are
        renormalised over the kept set.
    """
    logps = torch.log_softmax(logits.float() / temperature, -1)
    if top_p < 1.0:
        ranked, order = _without(logps, never).sort(-1, descending=True)
        mass_before = _running_sum(ranked.exp()) - ranked.exp()
        ranked = ranked.masked_fill(mass_before >= top_p, -torch.inf)
        logps = torch.log_softmax(torch.empty_like(logps).scatter_(-1, order, ranked), -1)
    # fp64: with 150,000 tokens the rounding of an fp32 running sum would outweigh rare tokens.
    mass = _running_sum(_without(logps, never).double().exp())
    total = mass[:, -1:]
    # Below the total, which the product may round to: an id of probability 0 may be the last one.
    aim = torch.minimum(draws.to(mass)[:, None] * total, total.nextafter(torch.zeros_like(total)))
    # The first token whose running sum exceeds the aim; one of probability 0 never is.
    ids = torch.searchsorted(mass, aim, right=True).clamp_(max=mass.shape[-1] - 1)
    return ids.squeeze(-1), logps.gather(-1, ids).squeeze(-1)


def likeliest(
    logits: Tensor, *, temperature: float, never: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the likeliest id of each row, the lowest among equals, and its log-prob."""
    logps = torch.log_softmax(logits.float() / temperature, -1)
    ids = _without(logits, never).argmax(-1)
    return ids, logps.gather(-1, ids[:, None]).squeeze(-1)


def _without(values: Tensor, never: Tensor | None) -> Tensor:
    return values if never is None else values.index_fill(-1, never, -torch.inf)


def _running_sum(values: Tensor) -> Tensor:
    """Sum along the rows; PyTorch has no reproducible sum of this kind on a GPU."""
    if values.is_cuda and torch.are_deterministic_algorithms_enabled():
        return values.cpu().cumsum(-1).to(values.device)
    return values.cumsum(-1)
