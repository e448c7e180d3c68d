"""Qwen2.5-VL: its decoder is called with embeddings and positions of our own."""

from __future__ import annotations

from rrgpolicy.model.families.qwen2 import Qwen2


class Qwen25VL(Qwen2):
    """Its tower attends within windows, and vLLM is given what it makes."""

    windows = True
    embedded = True


FAMILY = Qwen25VL()
