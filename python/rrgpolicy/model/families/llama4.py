"""Llama 4: chunks of attention are counted from the row's first token."""

from __future__ import annotations

from rrgpolicy.model.families.family import Family

FAMILY = Family(joins=False)  # one group a row; its forward takes no features of images
