"""Configures the classes of settings: pydantic dataclasses, described beneath their fields."""

from __future__ import annotations

from pydantic import ConfigDict

SETTINGS = ConfigDict(use_attribute_docstrings=True)
"""The text beneath a field is its description."""
