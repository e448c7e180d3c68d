"""The official packages, in an environment of their own and a process each: the oracle."""

from __future__ import annotations

from rrgclinical.official.chexbert import OfficialCheXbert
from rrgclinical.official.process import OracleError, Worker, oracle_python
from rrgclinical.official.radgraph import OfficialRadGraph, OfficialRadGraphExtractor
from rrgclinical.official.ratescore import OfficialRaTEScore

__all__ = [
    "OfficialCheXbert",
    "OfficialRaTEScore",
    "OfficialRadGraph",
    "OfficialRadGraphExtractor",
    "OracleError",
    "Worker",
    "oracle_python",
]
