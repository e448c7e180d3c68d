"""Ovis2: features of the marks around an image come with those of the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rrgpolicy.model.families.family import Family

_MARKS = "visual_indicator_features"


class Ovis2(Family):
    """Its marks have one row each of the tower's table, whatever the image."""

    carried = (*Family.carried, _MARKS)

    def join(self, features: Sequence[Any]) -> Any:
        joined = super().join(features)
        joined[_MARKS] = features[0][_MARKS]
        return joined


FAMILY = Ovis2()
