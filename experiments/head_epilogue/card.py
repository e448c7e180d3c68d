"""Choose by the card if a head's product sums its softmax, and its tiles."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import torch

from rrgkern.logps.inputs import FromHidden
from rrgkern.policy_loss.linear.api import operations_per_byte

# Of cuBLAS's operations a second, what a product of Triton is expected to reach with its epilogue.
# No card has measured it.
SHARE = 0.8
# 16-bit exponentials or gradients at a time take 1 / ROOM of the memory: 1.25 GiB of 80.
ROOM = 64
# Hidden states of a group of rows take a third of the L2 cache, the weight's tiles pass by.
IN_CACHE = 3
WAYS = ("epilogue", "tiles")


class Card(NamedTuple):
    """Hold what the choice reads of a device.

    `capability` is 90 for an H100, 0 for no GPU; `memory` and `cache`, its L2, are in bytes;
    `balance` are operations of 16-bit products a byte of memory, infinite where not known.
    """

    capability: int
    multiprocessors: int
    memory: int
    cache: int
    balance: float

    @staticmethod
    def of(device: torch.device) -> Card:
        """Read a device's record."""
        if device.type != "cuda" or torch.version.hip:
            return Card(0, 0, 0, 0, math.inf)
        card = torch.cuda.get_device_properties(device)
        capability = 10 * card.major + card.minor
        sizes = card.multi_processor_count, card.total_memory, card.L2_cache_size
        return Card(capability, *sizes, operations_per_byte(device))


class Tiles(NamedTuple):
    """Say how a kernel is compiled: tiles of m rows, n columns, k of width."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    tma: bool


class Plan(NamedTuple):
    """Hold tiles, the programs that take them, and bytes of 16-bit numbers.

    `group` tiles of rows are taken for a slice of the weight before the next.
    """

    tiles: Tiles
    programs: int
    room: int
    group: int


# By capability: tiles, and those of heads with a bias or softcap, whose epilogue takes more
# registers. The gates on the machine code hold each.
TILES = {
    80: (Tiles(128, 128, 32, 8, 4, tma=False), Tiles(128, 64, 32, 8, 4, tma=False)),
    86: (Tiles(128, 128, 32, 8, 3, tma=False), Tiles(128, 64, 32, 8, 3, tma=False)),
    89: (Tiles(128, 128, 32, 8, 3, tma=False), Tiles(128, 64, 32, 8, 3, tma=False)),
    90: (Tiles(128, 256, 64, 8, 3, tma=True), Tiles(128, 128, 64, 8, 4, tma=True)),
    100: (Tiles(128, 128, 64, 8, 3, tma=True), Tiles(128, 64, 64, 8, 3, tma=True)),
    103: (Tiles(128, 128, 64, 8, 3, tma=True), Tiles(128, 64, 64, 8, 3, tma=True)),
    120: (Tiles(128, 128, 32, 8, 3, tma=True), Tiles(128, 64, 32, 8, 3, tma=True)),
}


def choose(card: Card, x: FromHidden) -> Plan | None:
    """Return a product's plan with an epilogue, None for the head of tiles.

    Beside a product of cuBLAS the other saves 8 bytes a logit, written and read again, and takes
    2 H (1 / SHARE - 1) operations more. RRGKERN_HEAD=epilogue or =tiles decides in its place.

    Raises:
        ValueError: RRGKERN_HEAD is neither, or asks for what the card or the head does not allow.
    """
    forced = os.environ.get("RRGKERN_HEAD")
    if forced is not None and forced not in WAYS:
        raise ValueError(f"RRGKERN_HEAD is {forced!r}, wanted {' or '.join(WAYS)}")
    width = x.hidden.shape[1]
    pays = width * 2 * (1 / SHARE - 1) < 8 * card.balance < math.inf
    reason = why_not(card, x)
    if forced == "epilogue" and reason:
        raise ValueError(f"RRGKERN_HEAD is 'epilogue' and {reason}; unset it for the head of tiles")
    if reason or forced == "tiles" or not (pays or forced):
        return None
    tiles = TILES[card.capability][x.softcap != 0 or x.bias is not None]
    group = max(1, card.cache // IN_CACHE // (2 * width * tiles.m))
    return Plan(tiles, card.multiprocessors, card.memory // ROOM, group)


def why_not(card: Card, x: FromHidden) -> str | None:
    """Say why a product with an epilogue cannot serve this head on this card."""
    dtype, width = x.hidden.dtype, x.hidden.shape[1]
    if card.capability not in TILES:
        served = ", ".join(map(str, TILES))
        return f"the device's compute capability is {card.capability}, wanted one of {served}"
    if dtype.itemsize != 2 or x.weight.dtype != dtype:
        return f"hidden is {dtype} and weight {x.weight.dtype}, wanted both in one 16-bit dtype"
    if width % 8:
        return f"hidden has a width of {width}, wanted a multiple of 8"
    return None
