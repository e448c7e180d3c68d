"""Every kernel of csrc, compiled and executed: equal to the reference bit for bit, mutants die."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch

import rrgkern
from rrgkern import dispatch
from rrgkern.mccs import op as mccs_op
from tests.ptx.csrc import ROOMS, ROOT, built, device, mutated_ptx
from tests.ptx.parse import PtxError
from tests.rrgkern.edit_plan.cases import random_pair
from tests.rrgkern.edit_plan.test_twin import scattered, table, with_kinds
from tests.rrgkern.entity_match.test_twin import side
from tests.rrgkern.many_cases import Choices
from tests.rrgkern.token_weights import cases as token_cases
from tests.skips import no_case

# Where the launchers of CPU and CUDA differ, the op that a public function calls is exchanged.
CUDA = {
    f"rrgkern.{room}.api.{name}_op": dispatch._kernels[f"rrgkern::{name}", "cuda"].launch
    for room, name in (
        *(("diversity", "rank_sample"), ("entity_match", "entity_match")),
        *(("edit_plan", "edit_plan"), ("edit_plan", "edit_plan_released")),
    )
}


@contextmanager
def executed(mutant: str = "", most_blocks: int = 65535) -> Iterator[Any]:
    with device(mutant, most_blocks) as machine:
        patches = [mock.patch(name, launcher) for name, launcher in CUDA.items()]
        for patch in patches:
            patch.start()
        try:
            yield machine
        finally:
            for patch in patches:
                patch.stop()


def drawn(make: Callable[[Choices], Any], count: int) -> list[Any]:
    generator = random.Random(count)
    return [make(Choices(generator.randbytes(40))) for _ in range(count)]


def mccs(size: int = 40, dtype: torch.dtype = torch.int64) -> Any:
    pred, truth = torch.randint(0, 4, (2, size, 14), generator=torch.Generator().manual_seed(size))
    return rrgkern.mccs(pred.to(dtype), truth.to(dtype), margin=0.3)


def diversity(size: int = 70, samples: int = 5) -> Any:
    generator = torch.Generator().manual_seed(size)
    return rrgkern.diagnostic_diversity(torch.rand(size, samples, 14, generator=generator) < 0.4)


def rank_sample(size: int = 300, seed: int = -7) -> Any:
    scores = torch.rand(size, generator=torch.Generator().manual_seed(size)).mul(9).round() / 10
    return tuple(rrgkern.rank_sample(scores, 0.2, seed=seed))


def tfidf(size: int = 24) -> Any:
    return rrgkern.tfidf_weights(*token_cases.group_tensors(drawn(token_cases.some_group, size)))


def span_max(size: int = 24) -> Any:
    alignments = drawn(token_cases.some_alignment, size)
    return rrgkern.span_max(*token_cases.alignment_tensors(alignments))


def byte_level_spans(size: int = 24) -> Any:
    return rrgkern.byte_level_spans(
        *token_cases.token_tensors(drawn(token_cases.some_tokens, size))
    )


def entity_match(pairs: int = 5, most: int = 11, width: int = 33) -> Any:
    generator = torch.Generator().manual_seed(width)
    sizes = torch.randint(0, most + 1, (2, pairs), generator=generator).tolist()
    x, y = (side(counts, width, 3, generator) for counts in sizes)
    affinity = torch.rand(3, 3, generator=generator)
    return tuple(rrgkern.entity_match(x, y, affinity=affinity, neg_weight=0.8717))


def edit_plan(pairs: int = 2, sentences: int = 4, texts: int = 6, **options: Any) -> Any:
    batch = [random_pair(seed, sentences, texts) for seed in range(pairs)]
    x, y = (with_kinds([pair[k] for pair in batch], k) for k in (0, 1))
    x, y = scattered(x, 33, 1), scattered(y, 33, 2)
    return tuple(rrgkern.edit_plan(x, y, seeds=torch.arange(pairs) - 7, **options))


def edit_plan_released(pairs: int = 3, **sizes: int) -> Any:
    return edit_plan(pairs, rule="released", tau=0.6, affinity=table(3), **sizes)


CASES: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "mccs": (mccs, {"mccs_kernel"}),
    "diversity": (diversity, {"diversity_kernel"}),
    "rank_sample": (rank_sample, {"draw_kernel", "key_kernel"}),
    "tfidf": (tfidf, {"tfidf_weights_kernel"}),
    "span_max": (span_max, {"span_max_kernel"}),
    "byte_level_spans": (byte_level_spans, {"byte_level_spans_kernel"}),
    "entity_match": (entity_match, {"entity_match_kernel"}),
    "edit_plan": (edit_plan, {"edit_plan_kernel"}),
    "edit_plan_released": (edit_plan_released, {"edit_plan_released_kernel"}),
}


# A wrong bound in every kernel.
BOUNDS = {
    "mccs": ("mccs/cuda.cu", "row < rows;", "row <= rows;"),
    "diversity": ("diversity/cuda.cu", "positive + s * size", "positive + (s + 1) * size"),
    "rank_sample": ("diversity/cuda.cu", "tie[s] = draw.tie", "tie[s + 1] = draw.tie"),
    "tfidf": ("token_weights/cuda.cu", "u < offsets[s + 1]; ++u", "u <= offsets[s + 1]; ++u"),
    "span_max": ("token_weights/cuda.cu", "piece_offsets[s + 1],", "piece_offsets[s + 1] + 9,"),
    "byte_level_spans": ("token_weights/cuda.cu", "- offsets[s], bytes", "- offsets[s] + 1, bytes"),
    "entity_match": ("entity_match/cuda.cu", "min(u + j, end - 1)", "min(u + j, end)"),
    "edit_plan": ("edit_plan/cuda.cu", "&& e < rows &&", "&&"),
    "edit_plan_released": ("edit_plan/cuda.cu", "&& e < rows &&", "&&"),
}
# A barrier that the case needs, by its number in the kernel; `test_csrc_sweeps` removes each.
BARRIERS = {"entity_match": 1, "edit_plan": 3, "edit_plan_released": 0}
# Kernels whose first load of several bytes begins one byte later.
UNALIGNED = ("edit_plan", "edit_plan_released")
LOAD = re.compile(r"\bld\.\w+(?:\.\w+)*?\.[usbf](?:32|64)\s+%\w+, \[%\w+(?:\+(\d+))?(?=\])")


def entry(text: str, kernel: str) -> tuple[int, int]:
    """Where the entry whose name ends in `kernel` begins and ends in PTX."""
    start = next(m.start() for m in re.finditer(r"\.entry (\w+)", text) if kernel in m[1])
    end = text.find(".entry", start + 1)
    return start, len(text) if end < 0 else end


def without_barrier(kernel: str, number: int) -> str:
    """PTX of csrc without one barrier of a kernel."""
    text, _ = built()
    start, end = entry(text, kernel)
    first, last = list(re.compile(r"bar\.sync[^;]*;").finditer(text, start, end))[number].span()
    return text[:first] + text[last:]


def unaligned(kernel: str) -> str:
    """PTX of csrc in which the first load of several bytes of a kernel begins one byte later."""
    text, _ = built()
    found = LOAD.search(text, *entry(text, kernel))
    assert found
    return f"{text[: found.end()]}+1{text[found.end() :]}"


def assert_equal(found: Any, wanted: Any) -> None:
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for one, other in pairs:
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_compiled_kernel_equals_the_twin(name: str) -> None:
    case, kernels = CASES[name]
    wanted = case()
    with executed() as machine:
        found = case()
    assert {kernel for kernel in kernels if any(kernel in n for n in machine.launched)} == kernels
    assert_equal(found, wanted)


def dies(name: str, mutant: str, kinds: set[str]) -> None:
    case, kernels = CASES[name]
    with executed(mutant), pytest.raises(PtxError) as caught:
        case()
    assert caught.value.kind in kinds, caught.value
    assert any(kernel in str(caught.value) for kernel in kernels)


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_a_wrong_bound_dies(name: str) -> None:
    """A place that is another thread's, or nobody's, is met before the end of the memory."""
    dies(name, mutated_ptx(*sorted(set(BOUNDS.values()))), {"bounds", "race", "uninitialised"})


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("name", BARRIERS)
def test_a_missing_barrier_dies(name: str) -> None:
    dies(name, without_barrier(f"{name}_kernel", BARRIERS[name]), {"race", "uninitialised"})


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("name", UNALIGNED)
def test_a_misplaced_load_dies(name: str) -> None:
    dies(name, unaligned(f"{name}_kernel"), {"alignment"})


def test_every_kernel_has_a_case_and_a_mutant() -> None:
    sources = ((ROOT / "csrc" / room / "cuda.cu").read_text() for room in ROOMS)
    kernels = {name for text in sources for name in re.findall(r"__global__ void (\w+)", text)}
    assert set().union(*(kernels for _, kernels in CASES.values())) == kernels
    assert set(BOUNDS) == set(CASES)


def test_an_assertion_of_the_device_stops_the_kernel() -> None:
    with (
        executed(),
        pytest.raises(PtxError, match=r"assertion: thread 3 of block 0: valid_class\(p"),
    ):
        mccs_op._launch(
            *torch.arange(4).repeat_interleave(14).view(1, 4, 14).expand(2, 4, 14) + 1, 0.0, 1.0
        )


# More of csrc than CI executes: other sizes, grids of one block, each barrier removed in turn.
swept = pytest.mark.skipif(os.environ.get("RRGKERN_PTX") != "all", reason="make slow NAME=ptx")

SIZES: dict[str, Callable[[], Any]] = {
    **{f"mccs, {n} rows": partial(mccs, n) for n in (1, 256, 257, 5000)},
    **{
        f"mccs, {dtype}": partial(mccs, 40, dtype)
        for dtype in (torch.int8, torch.int16, torch.int32)
    },
    **{f"diversity, {k} samples": partial(diversity, 20, k) for k in (1, 2, 10, 33)},
    **{f"rank_sample, {seed}": partial(rank_sample, 5000, seed) for seed in (0, 2**64 - 1)},
    **{
        f"{case.__name__}, {n}": partial(case, n)
        for case in (tfidf, span_max, byte_level_spans)
        for n in (1, 2, 300)
    },
    **{f"entity_match, width {n}": partial(entity_match, 4, 9, n) for n in (1, 31, 32, 768)},
    "entity_match, many": partial(entity_match, 2, 60),
    **{
        f"edit_plan, {rule}, {n} edits": partial(edit_plan, 6, 6, 8, max_edits=n, tau=tau)
        for rule, tau in (("strict", 0.6), ("near", 0.95))
        for n in (1, 3, None)
    },
    "edit_plan, long": partial(edit_plan, 2, 40, 60),
    "edit_plan_released, long": partial(edit_plan_released, 4, sentences=20, texts=20),
}


@swept
@pytest.mark.parametrize("most_blocks", [1, 65535])
@pytest.mark.parametrize("in_slabs", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str, in_slabs: bool, most_blocks: int) -> None:
    """`in_slabs`: edit plans work in global memory, as those do that shared memory cannot hold."""
    if in_slabs and "edit_plan" not in name:
        no_case("has no slabs")
    wanted = SIZES[name]()
    limit = 0 if in_slabs else 48 << 10
    with mock.patch("rrgkern.edit_plan.op._SHARED_MEMORY", limit), executed("", most_blocks):
        assert_equal(SIZES[name](), wanted)


# Cases in which every barrier but the spare ones has something to order.
SWEPT: dict[str, list[Callable[[], Any]]] = {
    "entity_match_kernel": [partial(entity_match, 5, 40)],
    "edit_plan_kernel": [partial(edit_plan, 9, 16, 24), partial(edit_plan, 40, 3, 4)],
    "edit_plan_released_kernel": [partial(edit_plan_released, 16, sentences=8, texts=6)],
}
# The first: what is read after the second was written before it, by the same thread or another.
# The two after the cosines order words of 64 entities, and reports here have fewer.
SPARE = {("edit_plan_kernel", 0), ("edit_plan_kernel", 6), ("edit_plan_kernel", 7)}


def barriers() -> list[tuple[str, int]]:
    """The barriers of the kernels, in the order of the source's calls."""
    counts = {"entity_match_kernel": 3, "edit_plan_kernel": 9, "edit_plan_released_kernel": 5}
    return [(kernel, number) for kernel, count in counts.items() for number in range(count)]


@swept
@pytest.mark.parametrize(("kernel", "number"), barriers())
def test_every_barrier_is_needed(kernel: str, number: int) -> None:
    mutant = without_barrier(kernel, number)
    found = set()
    for case in SWEPT[kernel]:
        with executed(mutant, 1):
            try:
                case()
            except PtxError as error:
                found.add(error.kind)
    assert found <= {"race", "uninitialised"}
    assert bool(found) != ((kernel, number) in SPARE)
