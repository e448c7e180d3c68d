"""The oracle environment, whose tests run with RRGKERN_ORACLE=1 alone.

`make oracle` builds it and sets the variable; there its absence is an error. Elsewhere its tests,
a minute of `make test`, would run a second time. RRGKERN_ORACLE_SIZE=base runs encoders of the real
size (`make slow NAME=parity-full`).
"""

from __future__ import annotations

import os

import pytest

from rrgclinical.official import Worker
from rrgclinical.official import oracle_python as find_python

REPORTS = 220
SIZE = os.environ.get("RRGKERN_ORACLE_SIZE", "tiny")


@pytest.fixture(scope="session")
def oracle_python():
    """The interpreter of the environment."""
    if os.environ.get("RRGKERN_ORACLE") != "1":
        pytest.skip("the official packages have an environment of their own: run `make oracle`")
    return find_python()


@pytest.fixture(scope="session")
def oracle(oracle_python):
    """One process of the environment for all tests: most of its time goes into imports."""
    worker = Worker(oracle_python)
    yield worker
    worker.close()


@pytest.fixture(scope="session")
def base():
    """Tell whether encoders have the real size."""
    if SIZE not in ("tiny", "base"):
        pytest.fail(f"RRGKERN_ORACLE_SIZE is {SIZE!r}, wanted tiny or base")
    return SIZE == "base"
