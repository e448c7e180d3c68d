"""The bench of the reward service, at its shortest: every way scores the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import reward_service
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.serving.service import serving


def test_every_way_is_measured_against_one_by_one(tmp_path: Path) -> None:
    @contextmanager
    def serve(reward: dict, folder: Path) -> Iterator[str]:
        with serving(RewardService(RewardSettings(**reward))) as (url, _):
            yield url

    measured = reward_service.measure("rules", tmp_path, (2, 3), 1, serve=serve)
    by_way = {row["provider"]: row for row in measured}
    assert set(by_way) == {
        *("one by one", "batch", "service, one request", "service, a request a report"),
    }
    assert by_way["one by one"]["ratio"] == 1.0
    first = by_way["one by one"]["reports_a_second"]
    for row in measured:
        assert row["reports_a_second"] / first == pytest.approx(row["ratio"], rel=0.1)
        assert row["cores"] >= 1 and row["load"] >= 0 and row["batch"] == "2 x 3"
