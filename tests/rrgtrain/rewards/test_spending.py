"""Conversations of all ranks are bounded and counted, and each text is read once on a node."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rrgpolicy.ranks import ranks
from rrgreport.run_files import read_metrics
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService, spending
from rrgtrain.rewards.spending import share_of_rank
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.chat.server import Reply, Server, serving
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY
from tests.rrgtrain.rewards.reading_suite import EPOCHS, TERMS, Read, reports, studies
from tests.rrgtrain.rewards.spending_suite import CONCURRENCY, REPORTS, STEPS, settings
from tests.rrgtrain.runs import command, on_ranks

COST = (100 * 1000.0 + 10 * 10_000.0) / 1e6  # of one request, by the suite's prices


def nothing(*_: Any) -> Reply:
    """No facts: one request a report."""
    return Reply('{"facts": []}', hang=0.02)


def test_ranks_share_conversations_questions_and_budget(tmp_path: Path) -> None:
    with serving(nothing) as server:
        main = "tests.rrgtrain.rewards.spending_suite"
        on_ranks(str(tmp_path), server.url, cwd=tmp_path, main=main, statuses=[0, 0])
        assert 2 <= server.at_once <= CONCURRENCY
    *rows, total, stopped = json.loads((tmp_path / "found.json").read_text())
    # in the first step also the word that each rank asks for, and what both have once
    requests = [row["endpoint/facts_requests"] for row in rows]
    assert requests == [2 * REPORTS + 3, *[2 * REPORTS] * (STEPS - 1)]
    assert total["requests"] == sum(requests)
    assert total["prompt_tokens"] == 100 * sum(requests)
    assert total["cost"] == pytest.approx(COST * sum(requests))
    assert rows[-1]["endpoint/total_cost"] == pytest.approx(total["cost"])
    limit = total["cost"] * 1.25
    assert stopped["line"].startswith("reward term facts failed: the endpoints have cost ")
    assert f"and reward.max_cost={limit:g} allows no more; raise it to go on" in stopped["line"]
    # no more than what was under way when it was reached
    assert COST * len(server.asked) <= limit + CONCURRENCY * COST
    files = [json.loads(file.read_text()) for file in (tmp_path / "spent").glob("*.json")]
    counted = sum(f["requests"] for f in files)
    # what was cut off by the rank's own failure is not counted
    assert len(files) == 4 and 0 <= len(server.asked) - counted < CONCURRENCY


def run_options(server: Server) -> list[str]:
    prices = "concurrency: 1, input_price: 1000.0, output_price: 10000.0"
    return [
        *("rl", "--from", "tiny", "--out", "run", *OF_PHANTOM, *SMALL_POLICY),
        *("rl.steps=3", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=10", "rl.eval_every=3"),
        *("eval.limit=2", "eval.max_new_tokens=10", "eval.bootstrap=20", "eval.samples=2"),
        *("reward.terms={match: 1.0, facts: 0.1}", "checkpoint.steps=1"),
        f"reward.options={{facts: {{endpoint: '{server.url}', model: m, {prices}}}}}",
    ]


def test_a_budget_stops_a_run_which_goes_on_with_more(tmp_path: Path) -> None:
    with serving(nothing) as server:
        done = command(*run_options(server), "reward.max_cost=2.0", cwd=tmp_path, status=75)
        assert "the endpoints have cost 2 (10 requests, 1,000 tokens in, 100 out)" in done.last
        assert "reward.max_cost=2 allows no more; raise it to go on; go on with:" in done.last
        asked = len(server.asked)
        again = command("rl", "--resume", "run", cwd=tmp_path)
        assert again.status == 75 and "have cost 2" in again.last
        assert len(server.asked) <= asked + 1, "only the word that shows if it answers"
        more = command("rl", "--resume", "run", "reward.max_cost=1000", cwd=tmp_path, status=0)
        cost = COST * len(server.asked)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    totals = [row["endpoint/total_cost"] for row in rows if "endpoint/total_cost" in row]
    assert len(totals) == 3 and totals == sorted(totals)
    assert " cost=" in more.err
    (note,) = [
        n
        for n in json.loads((tmp_path / "run" / "summary.json").read_text())["notes"]
        if "endpoints" in n
    ]
    assert note.startswith(f"The endpoints of the rewards have cost {cost:.4g} (")


def test_a_selection_that_goes_on_has_spent_what_it_had(tmp_path: Path) -> None:
    with serving(nothing) as server:
        options = f"{{facts: {{endpoint: '{server.url}', model: m, concurrency: 1, "
        words = ["select", "--from", str(tiny_directory()), "--out", "run", *OF_PHANTOM]
        words += [
            "policy.prompt=short",
            "select.samples=2",
            "select.batch=1",
            "reward.max_cost=0.8",
        ]
        words += ["rl.max_new_tokens=8", "reward.terms={facts: 1.0}", "reward.starts={}"]
        words += [f"reward.options={options}input_price: 1000.0, output_price: 10000.0}}}}"]
        for asked in (4, 5):  # the second time only the word that shows if it answers
            done = command(*words, cwd=tmp_path)
            assert f"have cost {asked * COST:g} ({asked} requests" in done.last, done.err
            assert len(server.asked) == asked


def test_a_budget_needs_prices(tmp_path: Path) -> None:
    free = {"facts": {"endpoint": "http://x/v1", "model": "m"}}
    with pytest.raises(UserError, match=r"reward.max_cost=5, but the endpoint of facts has no"):
        RewardService(RewardSettings(terms={"facts": 1.0}, options=free, max_cost=5.0))
    with serving(nothing) as server:
        service = RewardService(settings(tmp_path, server.url, max_cost=0.0))
        with pytest.raises(RewardError, match=r"cost 0.2 \(1 requests.* reward.max_cost=0 allows"):
            service(["Edema."], ["Edema."])


def test_a_process_that_is_killed_takes_no_cost_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(spending, "UNSAVED", 0.0)
    saved: list[int] = []

    def answer(*_: Any) -> Reply:
        files = [json.loads(file.read_text()) for file in (tmp_path / "spent").glob("*.json")]
        saved.append(sum(file["requests"] for file in files))
        return Reply('{"facts": []}')

    with serving(answer) as server:
        service = RewardService(settings(tmp_path, server.url, concurrency=1))
        service.spending.keep_in(tmp_path / "spent")
        service([f"Report {i}." for i in range(4)], ["Edema."] * 4)
    assert saved == [0, 1, 2, 3, 4]  # at first the word that shows if it answers


def test_conversations_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "size", lambda: 8)

    def shares(options: dict[str, Any]) -> list[int]:
        found = []
        for rank in range(8):
            monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
            found.append(share_of_rank("green", {"model": "m", **options})["concurrency"])
        return found

    assert shares({"concurrency": 13}) == [2, 2, 2, 2, 2, 1, 1, 1]
    assert shares({}) == [2] * 8
    assert share_of_rank("facts", {}) == {}
    with pytest.raises(UserError, match=r"green.concurrency=7 is shared by 8 ranks; give each"):
        shares({"concurrency": 7})


WORLDS = (1, 2, 4)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Read]]:
    """Return what each rank of each world read."""
    found = {}
    for count in WORLDS:
        home = tmp_path_factory.mktemp(f"ranks-{count}")
        main = "tests.rrgtrain.rewards.reading_suite"
        on_ranks(str(home), cwd=home, count=count, main=main, statuses=[0] * count)
        found[count] = [
            pickle.loads((home / f"{rank}.pickle").read_bytes()) for rank in range(count)
        ]
    return found


@pytest.mark.parametrize("count", WORLDS)
def test_each_text_is_read_once(worlds: dict[int, list[Read]], count: int) -> None:
    references = {study.report or "" for study in studies()}
    written = {text for e in range(EPOCHS) for study in studies() for text in reports(study, e)}
    for reader in ("labelled", "extracted"):
        read = [text for rank in worlds[count] for text in getattr(rank, reader) if text]
        assert sorted(read) == sorted(references | written), reader


def test_the_ranks_share_the_work(worlds: dict[int, list[Read]]) -> None:
    for reader in ("labelled", "extracted"):
        counts = [len(getattr(rank, reader)) for rank in worlds[4]]
        assert min(counts) >= sum(counts) / 8, (reader, counts)


@pytest.mark.parametrize("count", WORLDS[1:])
def test_rewards_have_the_bits_of_one_process(worlds: dict[int, list[Read]], count: int) -> None:
    (alone,) = worlds[1]
    for rank in worlds[count]:
        # each epoch takes the studies in its own order, which is that of one process
        for one, several in zip(alone.scores, rank.scores, strict=True):
            assert one.keys() == several.keys() == {"total", *TERMS}
            for name in one:
                assert np.array_equal(one[name], several[name]), name
    assert len(np.unique(alone.scores[0]["total"])) > 4


@pytest.mark.parametrize("count", WORLDS[1:])
@pytest.mark.parametrize("place", ["ahead", "corpus"])
def test_a_reader_that_fails_on_one_rank_is_one_line_on_all(worlds, count, place):
    lines = {rank.errors[place] for rank in worlds[count]}
    assert len(lines) == 1
    (line,) = lines
    assert "\n" not in line
    assert "MemoryError: the reader's GPU is full (reading_suite.py:" in line
