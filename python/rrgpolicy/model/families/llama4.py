"""Llama 4: chunks of attention are counted from the row's first token."""

from __future__ import annotations

from rrgpolicy.model.families.family import Family


class Llama4(Family):
    """One group a row; its forward takes no features in place of pixels."""

    joins = False


FAMILY = Llama4()
