"""The official packages, in an environment of their own and a process each: the oracle."""

from __future__ import annotations

from rrgclinical.official.packages import (
    OfficialCheXbert,
    OfficialRadGraph,
    OfficialRadGraphExtractor,
    OfficialRaTEScore,
)
from rrgclinical.official.process import OracleError, Worker, oracle_python

__all__ = [
    "OfficialCheXbert",
    "OfficialRaTEScore",
    "OfficialRadGraph",
    "OfficialRadGraphExtractor",
    "OracleError",
    "Worker",
    "oracle_python",
]
