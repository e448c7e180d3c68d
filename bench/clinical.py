"""The clinical models against the official packages as they are called, in one run.

    make oracle && RRGKERN_ROWS=cpu-clinical RRGKERN_BENCH_FULL=1 \
        .venv/bin/python -m pytest -q --benchmark-quiet bench/clinical.py

Random weights of the real size, so speed means something and labels do not. Rounds interleave the
package, ours in fp32 and, where the CPU multiplies bf16 (AMX), ours in bf16; ratios are of medians.
`distinct` scores pairs of reports that are all different; `group` three prompts with eight rollouts
each, whose sentences are shared as in a group, against three references. RRGKERN_BENCH_FULL=1 adds
32 x 10 rollouts with their references read before, the package timed on 3 x 8 and extrapolated, for
each model and for the three together. RRGKERN_BENCH_BF16=1 runs bf16 on any CPU: what it changes
does not need AMX to be counted, but its speed there says nothing. Rows go to
bench/results/cpu-clinical.jsonl.

A model joins with an entry of `MODELS`. Both sides use the threads that OMP_NUM_THREADS gives. On a
busy machine RRGKERN_BENCH_CLOCK=cpu with OMP_NUM_THREADS=1 counts the CPU seconds of the two
processes instead of the time that passes, and RRGKERN_BENCH_ROUNDS=1 takes fewer rounds than three.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig

from bench import harness, rows
from rrgclinical import Entities
from rrgclinical.cached import Cached, CachedExtractor, CachedLabeller
from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.metrics import single_report_f1
from rrgclinical.official import OfficialCheXbert, OfficialRadGraph, OfficialRaTEScore, Worker
from rrgclinical.radgraph import RadGraph, radgraph_f1
from rrgclinical.ratescore import RaTEExtractor, affinity
from rrgkern import ReportEntities, entity_match
from rrgtrain.errors import UserError
from tests.rrgclinical.chexbert.tiny import WORDS
from tests.rrgclinical.oracle import base

ROUNDS = int(os.environ.get("RRGKERN_BENCH_ROUNDS", "3"))
CLOCK = os.environ.get("RRGKERN_BENCH_CLOCK", "wall")
PAIRS = 6
PROMPTS, ROLLOUTS = 3, 8
LARGE_PROMPTS, LARGE_ROLLOUTS = 32, 10
SENTENCES, LONGEST_SENTENCE = 8, 15
SHARED = 0.6

# A round of the packages may take longer than any test may.
pytestmark = pytest.mark.timeout(7200)

Score = Callable[[list[str], list[str]], Any]

ROWS: list[dict[str, object]] = []
# Seconds a pair of the package on 3 x 8, by model.
SAMPLE: dict[str, float] = {}
# Seconds of 32 x 10, by provider and model, for the row of all three.
LARGE: dict[str, dict[str, float]] = {}
ALL_WANTED = {"fp32": 7.0, "bf16": 15.0}
harness.tables.append(("clinical: reports a second, ratio to the package", ROWS))


@dataclass(frozen=True)
class Native:
    """score: candidates against references. keep: read references and remember them.
    read: what it says of each report, to compare dtypes by.
    """

    score: Score
    keep: Callable[[list[str]], Any]
    read: Callable[[list[str]], list[Any]]


@dataclass(frozen=True)
class Model:
    """write: its files in a folder. package, native: what scores with them.
    wanted: ratio to the package that the project asks for, by shape and dtype.
    """

    write: Callable[[Path, list[str]], Any]
    package: Callable[[Any, Worker], Score]
    native: Callable[[Any, str], Native]
    wanted: dict[tuple[str, str], float]


def chexbert_package(folder: Path, worker: Worker) -> Score:
    config = BertConfig()
    return OfficialCheXbert(folder / "weights.pth", folder, config=config, worker=worker).f1


def chexbert_native(folder: Path, dtype: str) -> Native:
    config = BertConfig()
    labeller = CheXbertLabeller(folder / "weights.pth", folder, config=config, dtype=dtype)
    held = CachedLabeller(labeller)
    return Native(
        lambda ours, theirs: single_report_f1(held.label(ours), held.label(theirs)),
        lambda texts: held.label(texts, keep=True),
        lambda texts: labeller.label(texts).tolist(),
    )


def radgraph_package(place: Path, worker: Worker) -> Score:
    return OfficialRadGraph(place, worker=worker).f1


def radgraph_native(place: Path, dtype: str) -> Native:
    reader = RadGraph(place, dtype=dtype)
    held = Cached(reader.annotate)
    return Native(
        lambda ours, theirs: list(map(radgraph_f1, held(ours), held(theirs))),
        lambda texts: held(texts, keep=True),
        lambda texts: [graph.official() for graph in reader.annotate(texts)],
    )


def ratescore_package(folders: tuple[Path, Path], worker: Worker) -> Score:
    model = OfficialRaTEScore(*folders, worker=worker).model
    return lambda ours, theirs: worker.call(
        "ratescore_scores", model=model, candidates=[*ours], references=[*theirs]
    )


def ratescore_native(folders: tuple[Path, Path], dtype: str) -> Native:
    extractor = RaTEExtractor(*folders, dtype=dtype)
    held, weights = CachedExtractor(extractor), affinity("long")

    def parts(entities: Entities) -> ReportEntities:
        fields = ("offsets", "presence", "embedding", "kind")
        return ReportEntities(**{f: torch.as_tensor(getattr(entities, f)) for f in fields})

    def score(ours: list[str], theirs: list[str]) -> torch.Tensor:
        x, y = parts(held.extract(ours)), parts(held.extract(theirs))
        return entity_match(x, y, affinity=weights, neg_weight=0.8717).score

    def read(texts: list[str]) -> list[Any]:
        found = extractor.extract(texts)
        names = list(zip(found.text, found.kind.tolist(), strict=True))
        return [names[found.of_report(row)] for row in range(len(texts))]

    return Native(score, lambda texts: held.extract(texts, keep=True), read)


MODELS = {
    "chexbert": Model(
        lambda folder, texts: base.write_chexbert(folder),
        chexbert_package,
        chexbert_native,
        {("distinct", "fp32"): 1.1, ("distinct", "bf16"): 3},
    ),
    "radgraph": Model(
        lambda folder, texts: base.write_radgraph(folder, "radgraph-xl"),
        radgraph_package,
        radgraph_native,
        {("distinct", "fp32"): 1.5},
    ),
    "ratescore": Model(
        lambda folder, texts: _named(base.write_ratescore(folder, texts, texts[-30:])),
        ratescore_package,
        ratescore_native,
        {("distinct", "fp32"): 4, ("group", "fp32"): 10},
    ),
}


def _named(folders: tuple[Path, Path]) -> tuple[Path, Path]:
    base.name_tokenizers(*folders)
    return folders


def sentences(rng: np.random.Generator, count: int) -> list[str]:
    """Random words: the encoders' time does not depend on which."""
    lengths = rng.integers(5, LONGEST_SENTENCE, count)
    return [" ".join(rng.choice(WORDS, length)).capitalize() + "." for length in lengths]


def distinct(seed: int) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    texts = [" ".join(sentences(rng, SENTENCES)) for _ in range(2 * PAIRS)]
    return texts[:PAIRS], texts[PAIRS:]


def groups(seed: int, prompts: int, rollouts: int) -> tuple[list[str], list[str]]:
    """Rollouts that keep a share of one report's sentences, and a reference per prompt."""
    rng = np.random.default_rng(seed)
    ours, theirs = [], []
    for _ in range(prompts):
        common, reference = sentences(rng, SENTENCES), " ".join(sentences(rng, SENTENCES))
        for _ in range(rollouts):
            fresh = sentences(rng, SENTENCES)
            kept = rng.random(SENTENCES) < SHARED
            ours.append(" ".join(np.where(kept, common, fresh)))
            theirs.append(reference)
    return ours, theirs


def group(seed: int) -> tuple[list[str], list[str]]:
    return groups(seed, PROMPTS, ROLLOUTS)


def amx() -> bool:
    file = Path("/proc/cpuinfo")
    return file.exists() and "amx_bf16" in file.read_text()


def dtypes() -> list[str]:
    """bf16 only where the CPU multiplies it in tiles, or where it is asked for."""
    return ["fp32", "bf16"] if amx() or "RRGKERN_BENCH_BF16" in os.environ else ["fp32"]


def record(model: str, batch: str, provider: str, wanted: float | None, **figures: Any) -> None:
    """Add a line to the table and a row to the results.

    bf16 is held to its ratio on AMX alone."""
    row = {"model": model, "batch": batch, "provider": provider, **figures}
    row["wanted"] = wanted if provider != "bf16" or amx() else None
    ROWS.append(row)
    threads = torch.get_num_threads()
    how = {"bench": "clinical", "threads": threads, "clock": CLOCK, "rounds": ROUNDS}
    rows.append(torch.device("cpu"), {**how, **row})


@pytest.fixture(scope="module")
def worker():
    try:
        running = Worker()
    except UserError as error:
        pytest.skip(str(error))
    yield running
    running.close()


@pytest.fixture(scope="module", params=list(MODELS))
def loaded(request, worker, tmp_path_factory):
    model = MODELS[request.param]
    texts = [text for seed in range(4) for part in distinct(seed) for text in part]
    place = model.write(tmp_path_factory.mktemp(request.param), texts)
    package = model.package(place, worker)
    natives = {dtype: model.native(place, dtype) for dtype in dtypes()}
    return request.param, model, package, natives, clock_of(worker)


def clock_of(worker: Worker) -> Callable[[], float]:
    """Seconds so far: of the wall, or of CPU in this process and the package's."""
    if CLOCK == "wall":
        return time.perf_counter
    # the clock of another process, as clock_getcpuclockid makes its number
    other = ~worker._process.pid << 3 | 2
    return lambda: time.process_time() + time.clock_gettime(other)


def seconds(clock: Callable[[], float], score: Score, pairs: tuple[list[str], list[str]]) -> float:
    begin = clock()
    score(*pairs)
    return clock() - begin


@pytest.mark.parametrize("shape", [distinct, group], ids=lambda shape: shape.__name__)
def test_scores(benchmark, loaded, shape: Callable[[int], tuple[list[str], list[str]]]) -> None:
    name, model, package, natives, clock = loaded
    scorers = {"package": package, **{dtype: one.score for dtype, one in natives.items()}}
    taken: dict[str, list[float]] = {scorer: [] for scorer in scorers}
    warm = shape(0)
    for score in scorers.values():
        score(warm[0][:2], warm[1][:2])
    rounds = iter(range(1, ROUNDS + 1))

    def one_round() -> None:
        # Texts that nothing has read: caches help within a batch only.
        pairs = shape(100 + next(rounds))
        for scorer, score in scorers.items():
            taken[scorer].append(seconds(clock, score, pairs))

    benchmark.pedantic(one_round, rounds=ROUNDS)
    medians = {scorer: statistics.median(times) for scorer, times in taken.items()}
    ours, theirs = shape(101)
    if shape is group:
        SAMPLE[name] = medians["package"] / len(ours)
    for scorer, median in medians.items():
        record(
            name,
            shape.__name__,
            scorer,
            model.wanted.get((shape.__name__, scorer)),
            reports_a_second=round((len(ours) + len(theirs)) / median, 2),
            ratio=medians["package"] / median,
            changed_by_bf16=_changed(natives, ours) if scorer == "bf16" else None,
        )


def _changed(natives: dict[str, Native], texts: list[str]) -> str:
    """Values that differ: cells of a row of labels, else whole reports."""
    pairs = list(zip(natives["fp32"].read(texts), natives["bf16"].read(texts), strict=True))
    if all(isinstance(one[0], int) for one, _ in pairs if one):
        cells = [a != b for one, other in pairs for a, b in zip(one, other, strict=True)]
        return f"{sum(cells)} of {len(cells)} labels"
    return f"{sum(one != other for one, other in pairs)} of {len(pairs)} reports"


@pytest.mark.skipif("RRGKERN_BENCH_FULL" not in os.environ, reason="needs RRGKERN_BENCH_FULL=1")
def test_a_training_batch(benchmark, loaded) -> None:
    """32 x 10 with references read before; the package extrapolated from 3 x 8."""
    name, _, _, natives, clock = loaded
    if name not in SAMPLE:
        pytest.skip("needs test_scores of the shape group in the same run")
    ours, theirs = groups(8, LARGE_PROMPTS, LARGE_ROLLOUTS)
    for native in natives.values():
        native.keep(sorted(set(theirs)))
    found = {n: seconds(clock, native.score, (ours, theirs)) for n, native in natives.items()}
    benchmark.pedantic(lambda: None, rounds=1)
    package = SAMPLE[name] * len(ours)
    for provider, spent in {"package": package, **found}.items():
        LARGE.setdefault(provider, {})[name] = spent
        _record_large(name, provider, len(ours), spent, package)
    if len(LARGE["package"]) == len(MODELS):
        sums = {provider: sum(models.values()) for provider, models in LARGE.items()}
        for provider, spent in sums.items():
            _record_large("all three", provider, len(ours), spent, sums["package"])


def _record_large(name: str, provider: str, reports: int, spent: float, package: float) -> None:
    extrapolated = ", extrapolated from 3 x 8" if provider == "package" else ""
    record(
        name,
        "32 x 10" + extrapolated,
        provider,
        ALL_WANTED.get(provider) if name == "all three" else None,
        reports_a_second=round(reports / spent, 2),
        ratio=package / spent,
    )
