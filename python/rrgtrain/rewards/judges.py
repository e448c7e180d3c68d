"""Models that single terms need, beside the recipe's labeller and extractor."""

from __future__ import annotations

from typing import Any

from rrgtrain.rewards.readers import open_extractor
from rrgtrain.schema import Reward


def open_model(name: str, settings: Reward) -> Any:
    """The model `name` with `reward.options.<name>`. UserError for options it cannot take."""
    return open_extractor(settings, name)
