"""Test the compiled kernel: the number of compilations."""

from __future__ import annotations

import pytest

from tests.rrgkern.aot.harness import in_compiling_process

pytest.importorskip("triton")

COUNT = """
from tests.rrgkern.advantages.aot_cases import groups
from tests.rrgkern.aot.harness import distinct_kernels

# Each argument begins at an element of its size, so these are slices from 0, 1 and 3 among others.
sizes = [1, 2, 3, 15, 16, 17, 19, 64, 65, *range(100, 1000, 50)]
for some_left_out in (False, True):
    print(distinct_kernels([
        lambda n=n, m=m: groups(
            "sample", some_left_out=some_left_out, n_groups=n, members=m, eps=1e-6 * n
        )
        for n in sizes
        for m in (1, 4, 5)
    ]))
print(distinct_kernels([lambda s=s: groups(s) for s in ("none", "population", "sample")]))
"""


@pytest.mark.slow
def test_sizes_and_slices_share_one_compilation() -> None:
    assert in_compiling_process("-c", COUNT).split() == ["1", "1", "3"]
