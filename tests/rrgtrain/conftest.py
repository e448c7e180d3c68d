"""The trainer's tests compute with the ops' references where only an interpreter would serve.

The kernels are held to those references in their own rooms; here they would only take their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from torch._library.custom_ops import OPDEFS

from rrgkern.dispatch import interpreting, served_by
from rrgpolicy.ranks import ranks


@pytest.fixture(autouse=True)
def _references_in_place_of_the_interpreter() -> Iterator[None]:
    with ExitStack() as stack:
        for name, op in list(OPDEFS.items()) if interpreting() else []:
            if name.startswith("rrgkern::") and served_by(name, "cpu").startswith("triton"):
                stack.enter_context(op.set_kernel_enabled("cpu", False))
        yield


@pytest.fixture(autouse=True, scope="module")
def _leaves_its_world() -> Iterator[None]:
    """Closes the process group of one that masters of another dtype open."""
    yield
    ranks.close()
