"""A stress test for any reward: planted errors, the orders they should keep, and gaming."""

from __future__ import annotations

from rrgclinical.stress.orders import (
    CRITICAL_ERRORS,
    FIRST_OF_MEANING,
    HARMLESS,
    ORDERS,
    Order,
    Tally,
    agreement_table,
    dearer_than_error,
    gaming_table,
    means,
    means_table,
    orders_table,
    tally,
    values_of,
)
from rrgclinical.stress.pairs import PairAgreement, Preferences, agreement, read_pairs
from rrgclinical.stress.planted import IDLE, NOTHING, Planted, gaming_rows, is_normal, plant

__all__ = [
    "CRITICAL_ERRORS",
    "FIRST_OF_MEANING",
    "HARMLESS",
    "IDLE",
    "NOTHING",
    "ORDERS",
    "Order",
    "PairAgreement",
    "Planted",
    "Preferences",
    "Tally",
    "agreement",
    "agreement_table",
    "dearer_than_error",
    "gaming_rows",
    "gaming_table",
    "is_normal",
    "means",
    "means_table",
    "orders_table",
    "plant",
    "read_pairs",
    "tally",
    "values_of",
]
