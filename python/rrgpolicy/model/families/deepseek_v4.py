"""DeepSeek V4: tokens are compressed in blocks, counted from a row's first token."""

from __future__ import annotations

from rrgpolicy.model.families.family import Family


class DeepseekV4(Family):
    """One prompt a row and a batch: padding would move its blocks."""

    joins = False


FAMILY = DeepseekV4()
