"""A stress test for any reward: planted errors, the orders they should keep, and gaming."""

from __future__ import annotations

from rrgclinical.stress.orders import (
    ORDERS,
    agreement_table,
    dearer_than_error,
    gaming_table,
    means_table,
    orders_table,
    tally,
    values_of,
)
from rrgclinical.stress.pairs import agreement, read_pairs
from rrgclinical.stress.planted import IDLE, NOTHING, gaming_rows, plant

__all__ = [
    "IDLE",
    "NOTHING",
    "ORDERS",
    "agreement",
    "agreement_table",
    "dearer_than_error",
    "gaming_rows",
    "gaming_table",
    "means_table",
    "orders_table",
    "plant",
    "read_pairs",
    "tally",
    "values_of",
]
