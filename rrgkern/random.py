"""Philox 4x32-10, the counter-based generator behind every rollout and edit.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A draw is a function of
(key, counter) alone, so a batch may be cut, reordered or moved to another device without changing
any choice. Python integers, or tensors of them: what the C++ twin is compared with.
"""

from __future__ import annotations

from typing import Any

_WORD = 0xFFFFFFFF


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, ...]:
    """Draw four 32-bit words, int or int64: ten rounds of Philox on counter and key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # Products below 2^64 wrap to int64; their words are right all the same.
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        high0, high1 = p0 >> 32 & _WORD, p1 >> 32 & _WORD
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, p1 & _WORD, high0 ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def uniform_below(n: int, seed: int, edit: int) -> int:
    """Draw from {0, ..., n-1} without bias, for edit number `edit` under `seed`.

    1 <= n < 2^32. Multiply-high with rejection (Lemire, "Fast random integer generation in an
    interval", 2019): draw d = 0, 1, ... takes w, the first word of Philox at counter
    (edit, d, 0, 0) under the key (low, high word of the seed), and returns the high 32 bits of
    w * n unless the low 32 bits fall below 2^32 mod n.
    """
    key = (seed & _WORD, (seed >> 32) & _WORD)
    reject_below = (1 << 32) % n
    draw = 0
    while True:
        product: int = philox4x32((edit, draw, 0, 0), key)[0] * n
        if (product & _WORD) >= reject_below:
            return product >> 32
        draw += 1


def philox_seed(run: int, step: int, prompt: int, member: int) -> int:
    """Derive the seed of one rollout or report pair, in [0, 2^63).

    Philox keyed by `run` at counter (step, member, prompt).

    Args:
        run: seed of the whole run, any integer of 64 bits.
        step: optimiser step, in [0, 2^32).
        prompt: number of the study in its data set, in [0, 2^64).
        member: place in the group, in [0, 2^32).

    Raises:
        ValueError: a number is out of its range.
    """
    for name, value, low, bits in (
        ("run", run, -(1 << 63), 64),
        ("step", step, 0, 32),
        ("prompt", prompt, 0, 64),
        ("member", member, 0, 32),
    ):
        if not low <= value < 1 << bits:
            raise ValueError(f"{name} is {value}, wanted {low} <= {name} < 2^{bits}")
    counter = (step, member, prompt & _WORD, prompt >> 32)
    low, high, *_ = philox4x32(counter, (run & _WORD, (run >> 32) & _WORD))
    seed: int = (low | high << 32) & ((1 << 63) - 1)
    return seed
