"""Count the sampled reports that earn nothing, step by step (OraPO, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rrgtrain.algorithms.orapo import zero_shares
from rrgtrain.train.step_record import StepRecord


@dataclass
class ZeroRecorder:
    """Record the share of zero rewards of each step of the loop.

    Beside it, the share of groups with no other reward."""

    shares: list[float] = field(default_factory=list)
    whole_groups: list[float] = field(default_factory=list)

    def __call__(self, record: StepRecord) -> None:
        shares = zero_shares(record.batch.groups, record.batch.rewards)
        self.shares.append(sum(shares) / len(shares))
        self.whole_groups.append(sum(share == 1.0 for share in shares) / len(shares))

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"shares": list(self.shares), "whole_groups": list(self.whole_groups)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        self.shares, self.whole_groups = list(state["shares"]), list(state["whole_groups"])
