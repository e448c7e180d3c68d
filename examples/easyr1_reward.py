"""Rewards of reports as EasyR1's batch reward file, also for its forks (MediX-R1).

worker.reward.reward_function=examples/easyr1_reward.py:compute_score, and the reference report in
the data set's answer column (data.answer_key). Terms and weights come from the configuration:

    worker.reward.reward_function_kwargs='{"label_f1": 1.0, "match": 0.5}'
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rrgclinical.serving import easyr1_pairs
from rrgtrain.integrations.from_trainers import read_settings
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

REWARD_NAME = "rrgkern"
REWARD_TYPE = "batch"


@cache
def service(terms: str) -> RewardService:
    """Open the reward once for these terms, JSON: to a cache 1 and True were the same."""
    section = {"terms": json.loads(terms) or {"label_f1": 1.0, "match": 1.0}}
    return RewardService(read_settings(RewardSettings, section, "reward_function_kwargs"))


def compute_score(
    reward_inputs: Sequence[Mapping[str, Any]], **terms: float
) -> list[dict[str, float]]:
    """Score a batch: "overall", the weighted total, and each term, which EasyR1 logs.

    Raises UserError for a weight that is no number.
    """
    reports, references = easyr1_pairs(reward_inputs)
    scores = service(json.dumps(terms, default=str))(reports, references)
    named = {"overall": scores["total"], **{k: v for k, v in scores.items() if k != "total"}}
    return [{name: float(v[i]) for name, v in named.items()} for i in range(len(reports))]


if __name__ == "__main__":
    for row in compute_score(
        [
            {"response": "Small left effusion.", "ground_truth": "Small left pleural effusion."},
            {"response": "Clear lungs.", "ground_truth": "Small left pleural effusion."},
        ]
    ):
        print({name: round(value, 3) for name, value in row.items()})
