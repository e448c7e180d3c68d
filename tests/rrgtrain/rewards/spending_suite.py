"""Ask one endpoint from two ranks, for `test_spending`.

words: a directory and the endpoint. Rank 0 writes [row of each step, and the run's sums].
"""

from __future__ import annotations

import json
from pathlib import Path

from rrgpolicy.ranks import ranks
from rrgtrain.errors import RewardError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

STEPS, REPORTS, CONCURRENCY = 2, 6, 3
SAME = "The same report on all ranks."


def settings(
    home: Path, url: str, *, concurrency: int = CONCURRENCY, **more: object
) -> RewardSettings:
    prices = {"input_price": 1000.0, "output_price": 10_000.0, "concurrency": concurrency}
    options = {"facts": {"endpoint": url, "model": "m", **prices}}
    return RewardSettings(terms={"facts": 1.0}, options=options, cache=str(home / "cache"), **more)


def main(words: list[str]) -> int:
    home, url = Path(words[0]), words[1]
    with ranks.opened("fsdp2", 120.0, cuda=False), ranks.propagate_errors():
        rewards = RewardService(settings(home, url))
        rewards.spending.keep_in(home / "spent")
        found = []
        for step in range(STEPS):
            before = rewards.statistics()
            own = [f"Report {step}.{ranks.rank()}.{i}." for i in range(REPORTS)]
            rewards([*own, SAME], ["Edema."] * (REPORTS + 1))
            found.append(rewards.since(before))
        found.append(rewards.spending.agree())
        # the budget is that of all ranks and of the processes before
        spent = found[-1]["cost"]
        poor = RewardService(settings(home, url, max_cost=spent * 1.25))
        poor.spending.keep_in(home / "spent")
        try:
            with ranks.propagate_errors():
                poor([f"Dear report {ranks.rank()}.{i}." for i in range(50)], ["Edema."] * 50)
                ranks.barrier()
        except RewardError as error:
            found.append({"line": str(error)})
        if ranks.is_main():
            (home / "found.json").write_text(json.dumps(found))
    ranks.close()
    return 0
