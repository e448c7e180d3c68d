"""Reports a second of the rules: every sentence new, and every sentence seen before.

    python -m pytest --benchmark-quiet bench/labeller.py

One process, one thread. Reports are the phantom's; `RRG_DATA` adds those of IU X-Ray. The rate
printed is the median's; the cold case clears the sentence cache before every round.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import harness
from experiments.human_codes import load_coded_reports
from rrgclinical import build_extractor, build_labeller
from rrgclinical.rules.assertion import read_sentence
from rrgdata.phantom import PhantomConfig, sample_case, write_report

REPORTS = 500
ROUNDS = 9

ROWS: list[dict[str, object]] = []
harness.tables.append(("rules: reports a second, one thread", ROWS))


def phantom() -> list[str]:
    config = PhantomConfig(prior=0.5, uncertain=0.2)
    cases = [sample_case(config, (0, 0, number)) for number in range(REPORTS)]
    return [write_report(case, case.findings, case.negated, config) for case in cases]


def iu_xray() -> list[str]:
    root = os.environ.get("RRG_DATA")
    if root is None:
        pytest.skip("RRG_DATA is not set: no IU X-Ray")
    return load_coded_reports(Path(root) / "iu_xray", "train").reports[:REPORTS]


@pytest.mark.parametrize("source", [phantom, iu_xray], ids=lambda source: source.__name__)
@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize(
    "read",
    [build_labeller("rules").label, build_extractor("rules").extract],
    ids=["label", "extract"],
)
def test_rules(
    benchmark, read: Callable[[list[str]], object], cold: bool, source: Callable[[], list[str]]
) -> None:
    reports = source()
    read(reports)
    setup = read_sentence.cache_clear if cold else None
    benchmark.pedantic(read, args=(reports,), setup=setup, rounds=ROUNDS)
    rate = len(reports) / benchmark.stats.stats.median
    characters = sum(map(len, reports)) / len(reports)
    ROWS.append(
        {
            "call": read.__name__,
            "cache": "cold" if cold else "warm",
            "reports": source.__name__,
            "characters a report": round(characters),
            "reports a second": round(rate),
        }
    )
