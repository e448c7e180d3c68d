"""Time rewards one by one, in a batch and over HTTP, in one run.

    make bench ROOM=rewards

Rollouts share sentences with their group, and eight share a reference; every way gets texts that
nothing has read. "one by one" calls a `RewardService` for each report, "batch" once for all. The
service is an `rrgtrain serve` in a process of its own, on this machine, with its default batch and
wait; it gets one request, or a request a report, 64 at a time, as verl asks. "package" is the
official package's own call on one list, where `make oracle` has made its environment or
RRGKERN_ORACLE_PYTHON names one; "radeval" is RadEval's in process, where it is installed. Ratios
are of the medians of rounds that take turns; a row holds the load that was there. RadGraph and
CheXbert have base size and random weights, and need RRGKERN_BENCH_FULL=1. RRGKERN_BENCH_ROUNDS=1
takes fewer rounds than three.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bench import harness, radeval_call, rows
from bench.clinical import chexbert_package, groups, radgraph_package
from bench.radeval_call import Way
from rrgclinical.official import Worker
from rrgclinical.serving import RewardClient
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.oracle import base

FULL = "RRGKERN_BENCH_FULL" in os.environ
ROUNDS = int(os.environ.get("RRGKERN_BENCH_ROUNDS", "3"))
PROMPTS, ROLLOUTS = 2, 8
BASELINE = "one by one"
AT_ONCE = 64  # as many as verl's client asks for

# A round of the packages may take longer than any test may.
pytestmark = pytest.mark.timeout(7200)

ROWS: list[dict[str, object]] = []
harness.tables.append((f"rewards: reports a second, ratio to {BASELINE}", ROWS))

Reports = Sequence[str]
Serve = Callable[[dict[str, Any], Path], AbstractContextManager[str]]


class Case(NamedTuple):
    """Hold the settings of a folder's reward, and others' calls on its files."""

    settings: Callable[[Path], dict[str, Any]]
    package: Callable[[Path, Worker], Way] | None = None
    radeval: Callable[[Path], Way] | None = None


def rules(folder: Path) -> dict[str, Any]:
    return {"terms": {"label_f1": 1.0, "match": 1.0}}


def radgraph(folder: Path) -> dict[str, Any]:
    weights = base.write_radgraph(folder, "radgraph-xl")
    return {"terms": {"radgraph": 1.0}, "options": {"radgraph": {"weights": str(weights)}}}


def chexbert(folder: Path) -> dict[str, Any]:
    base.write_chexbert(folder)
    vocabulary = folder / "vocab.txt"
    # by these places the labeller knows bert-base-uncased, and a recipe cannot say otherwise
    places = {101: "[CLS]", 102: "[SEP]", 1996: "the"}
    words = (w for w in vocabulary.read_text().splitlines() if w not in places.values())
    lines = [places.get(row) or next(words, f"[unused{row}]") for row in range(30_522)]
    vocabulary.write_text("".join(f"{line}\n" for line in lines))
    files = {"weights": str(folder / "weights.pth"), "tokenizer": str(folder)}
    return {**{"terms": {"label_f1": 1.0}, "labeller": "chexbert"}, "options": {"chexbert": files}}


CASES = {
    "rules": Case(rules),
    "radgraph": Case(
        radgraph,
        lambda folder, worker: radgraph_package(folder / "archive", worker),
        radeval_call.radgraph,
    ),
    "chexbert": Case(chexbert, chexbert_package, radeval_call.chexbert),
}


@contextmanager
def served(reward: dict[str, Any], folder: Path) -> Iterator[str]:
    """The address of `rrgtrain serve` in a process of its own."""
    recipe = folder / "served.yaml"
    recipe.write_text(json.dumps({"reward": reward}))
    command = [sys.executable, "-m", "rrgtrain", "serve", str(recipe), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), line
            yield line.split()[-1]
        finally:
            process.kill()


def one_by_one(score: Way) -> Way:
    return lambda ours, theirs: [
        score([report], [reference])["total"][0]
        for report, reference in zip(ours, theirs, strict=True)
    ]


def at_once(client: Way, pool: ThreadPoolExecutor) -> Way:
    def ask(ours: Reports, theirs: Reports) -> list[float]:
        pairs = ([[report], [reference]] for report, reference in zip(ours, theirs, strict=True))
        return [one["total"][0] for one in pool.map(lambda pair: client(*pair), pairs)]

    return ask


def measure(
    name: str,
    folder: Path,
    size: tuple[int, int] = (PROMPTS, ROLLOUTS),
    rounds: int = ROUNDS,
    worker: Worker | None = None,
    serve: Serve = served,
) -> list[dict[str, Any]]:
    """Time each way on (prompts, rollouts); AssertionError where two ways differ on a text."""
    case = CASES[name]
    reward = case.settings(folder)
    load = round(os.getloadavg()[0], 1)
    with serve(reward, folder) as url, ThreadPoolExecutor(AT_ONCE) as pool:
        client, service = RewardClient(url), RewardService(RewardSettings(**reward))
        ways = {
            BASELINE: one_by_one(service),
            "batch": lambda ours, theirs: service(ours, theirs)["total"],
            "service, one request": lambda ours, theirs: client(ours, theirs)["total"],
            "service, a request a report": at_once(client, pool),
        }
        warm = groups(0, 1, 2)
        totals = [way(*warm) for way in ways.values()]
        for total in totals:
            np.testing.assert_allclose(total, totals[0], atol=1e-4)
        if worker is not None and case.package is not None:
            ways["package"] = case.package(folder, worker)
            ways["package"](*warm)
        if case.radeval is not None and find_spec("radeval") is not None:
            ways["radeval"] = case.radeval(folder)
            ways["radeval"](*warm)
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(rounds):
            for place, (way, score) in enumerate(ways.items()):
                pairs = groups(1 + turn * len(ways) + place, *size)
                begin = time.perf_counter()
                score(*pairs)
                taken[way].append(time.perf_counter() - begin)
    medians = {way: statistics.median(seconds) for way, seconds in taken.items()}
    return [
        {
            **{"model": name, "batch": "{} x {}".format(*size), "provider": way},
            "ratio": medians[BASELINE] / spent,
            "reports_a_second": round(size[0] * size[1] / spent, 2),
            **{"load": load, "cores": os.cpu_count()},
        }
        for way, spent in medians.items()
    ]


@pytest.mark.parametrize("name", list(CASES) if FULL else ["rules"])
def test_rewards(benchmark, name: str, tmp_path: Path) -> None:
    try:
        worker = Worker() if CASES[name].package is not None else None
    except UserError as error:
        print(f"no package: {error}")
        worker = None
    measured: list[dict[str, Any]] = []
    benchmark.pedantic(lambda: measured.extend(measure(name, tmp_path, worker=worker)), rounds=1)
    how = {"bench": "rewards", "threads": torch.get_num_threads(), "rounds": ROUNDS}
    for row in measured:
        ROWS.append(row)
        if FULL:
            rows.append(torch.device("cpu"), {**how, **row})
