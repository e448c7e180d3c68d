"""Advantages of a group's members from their rewards."""

from __future__ import annotations

from rrgkern.advantages.api import group_advantages, zero_variance_share

__all__ = ["group_advantages", "zero_variance_share"]
