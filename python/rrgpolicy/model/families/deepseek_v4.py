"""DeepSeek V4: blocks of tokens are compressed, counted from a row's first token."""

from __future__ import annotations

from rrgpolicy.model.families.family import Family

FAMILY = Family(joins=False)  # one prompt a row and a batch: padding would move its blocks
