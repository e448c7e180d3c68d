"""More of csrc than CI executes: other sizes, grids of one block, each barrier removed in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch

from tests.ptx import test_csrc as c
from tests.ptx.parse import PtxError
from tests.skips import no_case

pytestmark = pytest.mark.skipif(os.environ.get("RRGKERN_PTX") != "all", reason="make slow NAME=ptx")

SIZES: dict[str, Callable[[], Any]] = {
    **{f"mccs, {n} rows": partial(c.mccs, n) for n in (1, 256, 257, 5000)},
    **{
        f"mccs, {dtype}": partial(c.mccs, 40, dtype)
        for dtype in (torch.int8, torch.int16, torch.int32)
    },
    **{f"diversity, {k} samples": partial(c.diversity, 20, k) for k in (1, 2, 10, 33)},
    **{f"rank_sample, {seed}": partial(c.rank_sample, 5000, seed) for seed in (0, 2**64 - 1)},
    **{
        f"{case.__name__}, {n}": partial(case, n)
        for case in (c.tfidf, c.span_max, c.byte_level_spans)
        for n in (1, 2, 300)
    },
    **{f"entity_match, width {n}": partial(c.entity_match, 4, 9, n) for n in (1, 31, 32, 768)},
    "entity_match, many": partial(c.entity_match, 2, 60),
    **{
        f"edit_plan, {rule}, {n} edits": partial(c.edit_plan, 6, 6, 8, max_edits=n, tau=tau)
        for rule, tau in (("strict", 0.6), ("near", 0.95))
        for n in (1, 3, None)
    },
    "edit_plan, long": partial(c.edit_plan, 2, 40, 60),
    "edit_plan_released, long": partial(c.edit_plan_released, 4, sentences=20, texts=20),
}


@pytest.mark.parametrize("most_blocks", [1, 65535])
@pytest.mark.parametrize("in_slabs", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str, in_slabs: bool, most_blocks: int) -> None:
    """`in_slabs`: edit plans work in global memory, as those do that shared memory cannot hold."""
    if in_slabs and "edit_plan" not in name:
        no_case("has no slabs")
    wanted = SIZES[name]()
    limit = 0 if in_slabs else 48 << 10
    with mock.patch("rrgkern.edit_plan.op._SHARED_MEMORY", limit), c.executed("", most_blocks):
        c.assert_equal(SIZES[name](), wanted)


# Cases in which every barrier but the spare ones has something to order.
BARRIERS: dict[str, list[Callable[[], Any]]] = {
    "entity_match_kernel": [partial(c.entity_match, 5, 40)],
    "edit_plan_kernel": [partial(c.edit_plan, 9, 16, 24), partial(c.edit_plan, 40, 3, 4)],
    "edit_plan_released_kernel": [partial(c.edit_plan_released, 16, sentences=8, texts=6)],
}
# The first: what is read after the second was written before it, by the same thread or another.
# The two after the cosines order words of 64 entities, and reports here have fewer.
SPARE = {("edit_plan_kernel", 0), ("edit_plan_kernel", 6), ("edit_plan_kernel", 7)}


def barriers() -> list[tuple[str, int]]:
    """The barriers of the kernels, in the order of the source's calls."""
    counts = {"entity_match_kernel": 3, "edit_plan_kernel": 9, "edit_plan_released_kernel": 5}
    return [(kernel, number) for kernel, count in counts.items() for number in range(count)]


@pytest.mark.parametrize(("kernel", "number"), barriers())
def test_every_barrier_is_needed(kernel: str, number: int) -> None:
    mutant = c.without_barrier(kernel, number)
    found = set()
    for case in BARRIERS[kernel]:
        with c.executed(mutant, 1):
            try:
                case()
            except PtxError as error:
                found.add(error.kind)
    assert found <= {"race", "uninitialised"}
    assert bool(found) != ((kernel, number) in SPARE)
