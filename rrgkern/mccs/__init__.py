"""Margin-based cosine of CheXbert labels (MRG-R1)."""

from __future__ import annotations

from rrgkern.mccs.api import mccs

__all__ = ["mccs"]
