"""The oracle environment, or why its tests do not run.

`make oracle` builds it. RRGKERN_ORACLE=1 makes its absence a failure, as in CI.
RRGKERN_ORACLE_SIZE=base runs encoders of the real size (`make parity-full`).
"""

from __future__ import annotations

import os

import pytest

from rrgclinical.official import Worker
from rrgclinical.official import oracle_python as find_python
from rrgtrain.errors import UserError

REPORTS = 220
SIZE = os.environ.get("RRGKERN_ORACLE_SIZE", "tiny")


@pytest.fixture(scope="session")
def oracle_python():
    """The interpreter of the environment."""
    try:
        return find_python()
    except UserError as error:
        if os.environ.get("RRGKERN_ORACLE") == "1":
            pytest.fail(f"RRGKERN_ORACLE=1, and {error}")
        pytest.skip(str(error))


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
