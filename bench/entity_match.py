"""Time the matching of the entities of one step's reports.

320 pairs, of 20 entities each and of 1 to 40.

RaTEScore's own loop is measured where the package is installed (`pip install --no-deps
RaTEScore==0.6.0`): the embeddings are given, so neither of its models is needed. On a CPU two
floors are measured beside it: to read the embeddings once, and one fp32 matrix product of as many
FLOPs. Everything runs on one thread but what names all cores.

    python bench/entity_match.py --plot FILE.svg

draws the cost against the number of pairs, up to 100,000, and exits 1 unless it is linear.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
import sys
import time
import types
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bench import harness
from bench.harness import Bench
from rrgkern import EntityMatch, ReportEntities, entity_match

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEG_WEIGHT = 0.8717
TYPES = ("ABNORMALITY", "NON-ABNORMALITY", "DISEASE", "NON-DISEASE", "ANATOMY")
PRESENCE = torch.tensor([1, 0, 1, 0, -1], dtype=torch.int8)
# Like RaTEScore's table: no two weights equal, none zero.
AFFINITY = torch.rand(len(TYPES), len(TYPES), generator=torch.Generator().manual_seed(0)) + 0.01

PACKAGE = "RaTEScore 0.6.0"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
EVERY_CORE = f"on {CORES} cores"

bench = Bench("entity_match", baseline="rrgkern")
Provider = Callable[[ReportEntities, ReportEntities], Any]


def register(name: str, *, cores: bool = False, **options: Any) -> Callable[[Provider], Provider]:
    """Register a provider on one CPU thread, and with `cores` also on all of them."""

    def on(threads: int, function: Provider) -> Provider:
        def run(x: ReportEntities, y: ReportEntities) -> Any:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                return function(x, y)
            finally:
                torch.set_num_threads(before)

        return run

    def decorate(function: Provider) -> Provider:
        bench.provider(name, **options)(on(1, function))
        if cores and CORES > 1:
            options["device"] = "cpu"
            bench.provider(f"{name} {EVERY_CORE}", **options)(on(CORES, function))
        return function

    return decorate


@register("rrgkern", cores=True)
def ours(x: ReportEntities, y: ReportEntities) -> EntityMatch:
    return entity_match(x, y, affinity=AFFINITY.to(DEVICE), neg_weight=NEG_WEIGHT)


@register(PACKAGE, needs="RaTEScore", device="cpu")
def package(x: ReportEntities, y: ReportEntities) -> list[float]:
    """The package's loop over pairs and its own `compute`, as `RaTEScore.compute_score` has it."""
    compute, weights = package_loop()
    scores = []
    for (a, c), (b, d) in pairwise(zip(x.offsets.tolist(), y.offsets.tolist(), strict=True)):
        if a == b or c == d:
            scores.append(0.5)
            continue
        mine, theirs = x.embedding[a:b], y.embedding[c:d]
        own, other = names(x, a, b), names(y, c, d)
        precision = compute(theirs, mine, other, own, weights)
        recall = compute(mine, theirs, own, other, weights)
        both = precision + recall
        scores.append(2 * precision * recall / both if both else 0.0)
    return scores


@functools.cache
def package_loop() -> tuple[Any, dict[tuple[str, str], float]]:
    """RaTEScore's `compute` from the installed package, and our table in its form."""
    package = importlib.util.find_spec("RaTEScore")
    path = Path(package.submodule_search_locations[0], "utils.py")
    # Its sentence splitter loads medspacy at import, which wants an older numpy; it is not used.
    stand_in = types.ModuleType("medspacy")
    stand_in.load = lambda **_: None
    before = sys.modules.get("medspacy")
    sys.modules["medspacy"] = stand_in
    try:
        spec = importlib.util.spec_from_file_location("ratescore_utils", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        del sys.modules["medspacy"]
        if before is not None:
            sys.modules["medspacy"] = before
    table = {
        (one, other): float(AFFINITY[i, j])
        for i, one in enumerate(TYPES)
        for j, other in enumerate(TYPES)
    }
    return module.compute, table | {("NEG", "WEIGHT"): NEG_WEIGHT}


def names(z: ReportEntities, first: int, last: int) -> list[str]:
    return [TYPES[kind] for kind in z.kinds()[first:last].tolist()]


@register("pair by pair")
def pair_by_pair(x: ReportEntities, y: ReportEntities) -> Tensor:
    """Eager fp32, one product a pair; the score only."""
    scores = []
    for (a, c), (b, d) in pairwise(zip(x.offsets.tolist(), y.offsets.tolist(), strict=True)):
        cosine = x.embedding[a:b] @ y.embedding[c:d].T
        p = side(cosine, x.kinds()[a:b].long(), y.kinds()[c:d].long())
        r = side(cosine.T, y.kinds()[c:d].long(), x.kinds()[a:b].long())
        scores.append(2 * p * r / (p + r))
    return torch.stack(scores)


@register("numpy", device="cpu")
def by_numpy(x: ReportEntities, y: ReportEntities) -> list[tuple[Any, Any]]:
    """Multiply each pair in fp32, and place each side's best; no weight, no score."""
    ours, theirs = x.embedding.numpy(), y.embedding.numpy()
    best = []
    for (a, c), (b, d) in pairwise(zip(x.offsets.tolist(), y.offsets.tolist(), strict=True)):
        cosine = ours[a:b] @ theirs[c:d].T
        best.append((cosine.argmax(1), cosine.argmax(0)))
    return best


def side(cosine: Tensor, own: Tensor, other: Tensor) -> Tensor:
    best, index = cosine.max(1)
    found = other[index]
    weight = AFFINITY.to(DEVICE)[own, found]
    gain = torch.where(crosses(own, found), weight * NEG_WEIGHT, weight)
    return (best * gain).sum() / weight.sum()


def crosses(own: Tensor, other: Tensor) -> Tensor:
    table = PRESENCE.to(DEVICE)
    mine, theirs = table[own], table[other]
    return (mine >= 0) & (theirs >= 0) & (mine != theirs)


@register("padded bmm")
def padded(x: ReportEntities, y: ReportEntities) -> Tensor:
    """All pairs at once in fp32, padded to the longest report; the score only."""
    (a, own, has_x), (b, other, has_y) = pad(x), pad(y)
    cosine = a @ b.transpose(1, 2)
    cosine = cosine.masked_fill(~(has_x[:, :, None] & has_y[:, None, :]), -torch.inf)
    means = []
    for matrix, mine, theirs, has in (
        (cosine, own, other, has_x),
        (cosine.transpose(1, 2), other, own, has_y),
    ):
        best, index = matrix.max(2)
        found = theirs.gather(1, index)
        weight = AFFINITY.to(DEVICE)[mine, found].masked_fill(~has, 0.0)
        gain = torch.where(crosses(mine, found), weight * NEG_WEIGHT, weight)
        means.append((best.masked_fill(~has, 0.0) * gain).sum(1) / weight.sum(1))
    return 2 * means[0] * means[1] / (means[0] + means[1])


def pad(z: ReportEntities) -> tuple[Tensor, Tensor, Tensor]:
    counts = z.offsets.diff()
    embedding = pad_sequence(z.embedding.split(counts.tolist()), batch_first=True)
    kinds = pad_sequence(z.kinds().long().split(counts.tolist()), batch_first=True)
    places = torch.arange(embedding.shape[1], device=counts.device)
    return embedding, kinds, places < counts[:, None]


@register("bmm alone")
def product_alone(x: ReportEntities, y: ReportEntities) -> Tensor:
    """The product of reports padded as above and nothing else: neither matches nor scores."""
    return torch.bmm(pad(x)[0], pad(y)[0].transpose(1, 2))


@register("floor: read once", cores=True, device="cpu")
def read_once(x: ReportEntities, y: ReportEntities) -> list[Tensor]:
    """Every embedding once from memory, and nothing that takes time beside that."""
    return [z.embedding.sum() for z in (x, y)]


@register("floor: fp32 product", cores=True, device="cpu")
def square_product(x: ReportEntities, y: ReportEntities) -> Tensor:
    """One square product with the FLOPs of all dot products, its operands in the cache."""
    products = int((x.offsets.diff() * y.offsets.diff()).sum()) * x.embedding.shape[1]
    operand = square_operand(math.ceil(products ** (1 / 3)))
    return operand @ operand


@functools.cache
def square_operand(side: int) -> Tensor:
    return torch.randn(side, side, generator=torch.Generator().manual_seed(0))


FLOORS = ("floor: read once", "floor: fp32 product")


def against_package(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compute how many times as long the package's loop takes, by provider.

    The floor is the higher one."""
    times = {row["provider"]: row["p50_vs_rrgkern"] for row in rows}
    if PACKAGE not in times:
        return []
    for suffix in ("", f" {EVERY_CORE}"):
        floors = [times[name + suffix] for name in FLOORS if name + suffix in times]
        if floors:
            times[f"floor{suffix}"] = max(floors)
    return [
        {"provider": name, "times": times[PACKAGE] / time}
        for name, time in times.items()
        if name != PACKAGE
    ]


def reports(count: int, counts: Tensor, width: int, seed: int) -> ReportEntities:
    """`counts` [count] entities of random kinds and directions."""
    generator = torch.Generator().manual_seed(seed)
    total = int(counts.sum())
    kinds = torch.randint(0, len(TYPES), (total,), generator=generator)
    fields = (
        torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
        PRESENCE[kinds],
        torch.nn.functional.normalize(torch.randn(total, width, generator=generator), dim=1),
        kinds.to(torch.int8),
    )
    return ReportEntities(*(field.to(DEVICE) for field in fields))


def sizes(count: int, entities: str, seed: int) -> Tensor:
    if entities == "20 each":
        return torch.full((count,), 20)
    return torch.randint(1, 41, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("entities", ["20 each", "1 to 40"])
def test_entity_match(benchmark, entities):
    count, width = 320, 768

    def make_inputs(seed: int) -> tuple[ReportEntities, ReportEntities]:
        return tuple(
            reports(count, sizes(count, entities, s), width, s) for s in (2 * seed, 2 * seed + 1)
        )

    x, y = make_inputs(0)
    scores = ours(x, y).score.cpu()
    rivals = [provider for name, provider in bench.available(x.offsets.device)[0].items()
              if name != "bmm alone" and not name.startswith(("rrgkern", "floor"))]  # fmt: skip
    for rival in rivals:
        torch.testing.assert_close(torch.as_tensor(rival(x, y)).float().cpu(), scores)
    rows = bench.compare(
        benchmark,
        make_inputs,
        shape={"pairs": count, "entities": entities, "width": width},
        dtype=torch.float32,
        bytes_moved=2 * 20 * count * width * 4,
        flops=2 * width * count * 20 * 20,
        rounds=10,
    )
    if times := against_package(rows):
        harness.tables.append((f"{PACKAGE}'s loop takes so many times as long, {entities}", times))


def linear(path: Path) -> list[tuple[int, float]]:
    """Draw CPU seconds against pairs, 20 × 20 entities at width 64; returns the points."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise SystemExit("the figure needs matplotlib: pip install 'rrgkern[bench]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    torch.set_num_threads(1)
    points = []
    for pairs in (100, 300, 1000, 3000, 10_000, 30_000, 100_000):
        counts = torch.full((pairs,), 20)
        x, y = (reports(pairs, counts, 64, seed) for seed in (1, 2))
        ours(x, y)
        times = []
        for _ in range(5):
            begin = time.thread_time()
            ours(x, y)
            times.append(time.thread_time() - begin)
        points.append((pairs, min(times)))
    figure, axes = pyplot.subplots(figsize=(5, 3.5))
    first, last = points[0], points[-1]
    slope = last[1] / last[0]
    axes.loglog(*zip(*points, strict=True), "o", label="entity_match")
    axes.loglog([first[0], last[0]], [slope * first[0], slope * last[0]], "-", label="linear")
    axes.set(xlabel="report pairs, 20 × 20 entities, d = 64", ylabel="CPU seconds, one thread")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    return points


def is_linear(points: list[tuple[int, float]]) -> bool:
    """Tell whether cost per pair grows by less than half from 1,000 pairs on."""
    each = [seconds / pairs for pairs, seconds in points if pairs >= 1000]
    return max(each) <= 1.5 * min(each)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", required=True, type=Path)
    measured = linear(parser.parse_args().plot)
    for pairs, seconds in measured:
        each = seconds / pairs / (measured[0][1] / measured[0][0])
        print(f"{pairs:7d} pairs, cost of one relative to that among {measured[0][0]}: {each:5.2f}")
    sys.exit(0 if is_linear(measured) else "the cost is not linear in the number of pairs")
