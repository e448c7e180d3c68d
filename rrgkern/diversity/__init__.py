"""Diagnostic diversity of studies, and the draw of a training subset by its rank (DEER)."""

from __future__ import annotations

from rrgkern.diversity.api import RankSample, diagnostic_diversity, rank_sample
from rrgkern.diversity.spread import RewardSpread, reward_spread

__all__ = ["RankSample", "RewardSpread", "diagnostic_diversity", "rank_sample", "reward_spread"]
