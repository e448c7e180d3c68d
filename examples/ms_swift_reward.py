"""Rewards of reports as an ORM of ms-swift.

    swift rlhf --rlhf_type grpo --external_plugins examples/ms_swift_reward.py \
        --reward_funcs rrgkern --use_liger_kernel false ...

Every row of the data set has a column `report`, the reference. Terms and weights are in SERVICE.

`use_liger_kernel` averages the advantages [reports, tokens] to [reports]: a reward for the whole
report, as here, is the same on that path, but weights of tokens (DiTPO) are lost without a word.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from swift.rewards import ORM, orms

from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

SERVICE = RewardService(RewardSettings(terms={"label_f1": 1.0, "match": 1.0}))


class ReportReward(ORM):
    """Weighted total of the terms; a reward that fails stops the trainer."""

    def __init__(self, args: Any = None, **kwargs: Any) -> None:
        super().__init__(args, **kwargs)
        if getattr(args, "use_liger_kernel", False):
            warnings.warn(
                "use_liger_kernel=true averages token advantages over each report: rewards are "
                "unchanged, but weights of tokens (DiTPO) are lost; say use_liger_kernel=false",
                stacklevel=2,
            )

    def __call__(
        self, completions: Sequence[str], report: Sequence[str] | None = None, **columns: Any
    ) -> list[float]:
        """Score completions [R] beside the column `report` [R]."""
        if report is None:
            raise ValueError(
                f"the data set has no column 'report', it has {', '.join(sorted(columns))}; name "
                "the reference report so"
            )
        return SERVICE(completions, report)["total"].tolist()


orms["rrgkern"] = ReportReward

if __name__ == "__main__":
    print(ReportReward()(["Small left effusion."], report=["Small left pleural effusion."]))
