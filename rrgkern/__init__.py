"""Fused losses, edits and matching for reinforcement learning of radiology reports."""

from __future__ import annotations

__version__ = "0.1.0"
