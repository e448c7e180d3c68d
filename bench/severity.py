"""Pairs of reports a second that the severity reward judges, on one thread.

    RRG_DATA=../shared/data python -m pytest --benchmark-quiet bench/severity.py

Reports are IU X-Ray's findings with `RRG_DATA`, else the phantom's, each text once. Three cases:
nothing read before; references read; references read and eight rollouts of each, which share
sentences as a group's do. The rate is of the median round; before each the caches are cleared.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest

from bench import harness
from rrgclinical.severity import Severity
from rrgdata.phantom import PhantomConfig, phantom_reports

PAIRS, GROUP, ROUNDS = 900, 8, 7

ROWS: list[dict[str, object]] = []
harness.tables.append(("severity: pairs a second, one thread", ROWS))


def distinct_reports() -> tuple[str, list[str]]:
    """Name the source and return twice `PAIRS` texts, none equal to another."""
    root = os.environ.get("RRG_DATA")
    if root:
        source = "iu_xray"
        splits = json.loads((Path(root) / source / "annotation.json").read_text(encoding="utf-8"))
        reports = [study["report"] for studies in splits.values() for study in studies]
    else:
        source = "phantom"
        reports = phantom_reports(PhantomConfig(prior=0.5, uncertain=0.2, train=6 * PAIRS))
    reports = sorted(set(reports))
    random.Random(0).shuffle(reports)
    if len(reports) < 2 * PAIRS:
        pytest.fail(f"{source} has {len(reports)} distinct reports, {2 * PAIRS} are needed")
    return source, reports[: 2 * PAIRS]


def rollouts_of(reference: str, others: list[str], rng: random.Random) -> list[str]:
    """Write a group: the reference with sentences left out, and one of another report."""
    own = reference.split(". ")
    return [
        ". ".join(
            [*rng.sample(own, max(1, len(own) - 1)), rng.choice(rng.choice(others).split(". "))]
        )
        for _ in range(GROUP)
    ]


def forget() -> None:
    """Clear every cache of rrgclinical, then build again what is no reading of a text."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "rrgclinical":
            for value in vars(module).values():
                clear = getattr(value, "cache_clear", None)
                if clear:
                    clear()
    Severity().judge(["x"], ["x"])


@pytest.mark.parametrize("case", ["nothing read", "references read", "groups, references read"])
def test_severity(benchmark, case: str) -> None:
    source, reports = distinct_reports()
    texts, references = reports[:PAIRS], reports[PAIRS:]
    if case.startswith("groups"):
        rng = random.Random(0)
        references = references[: PAIRS // GROUP]
        texts = [text for one in references for text in rollouts_of(one, texts, rng)]
        references = [one for one in references for _ in range(GROUP)]

    def begin() -> tuple[tuple[Severity], dict[str, object]]:
        forget()
        severity = Severity()
        if case != "nothing read":
            severity.read(references, keep=True)
        return (severity,), {}

    benchmark.pedantic(
        lambda severity: severity.judge(texts, references), setup=begin, rounds=ROUNDS
    )
    rate = len(texts) / benchmark.stats.stats.median
    ROWS.append({"pairs": case, "reports": source, "pairs a second": round(rate)})
