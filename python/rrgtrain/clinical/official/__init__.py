"""The official packages, in an environment of their own and a process each: the oracle."""

from __future__ import annotations

from rrgtrain.clinical.official.chexbert import OfficialCheXbert
from rrgtrain.clinical.official.process import OracleError, Worker, oracle_python
from rrgtrain.clinical.official.radgraph import OfficialRadGraph, OfficialRadGraphExtractor
from rrgtrain.clinical.official.ratescore import OfficialRaTEScore

__all__ = [
    "OfficialCheXbert",
    "OfficialRaTEScore",
    "OfficialRadGraph",
    "OfficialRadGraphExtractor",
    "OracleError",
    "Worker",
    "oracle_python",
]
