"""Procedural radiographs that show what their reports say, from a seed."""

from __future__ import annotations

from rrgtrain.data.phantom.case import Case, Finding, sample_case
from rrgtrain.data.phantom.config import PhantomConfig
from rrgtrain.data.phantom.sheet import phantom_sheet
from rrgtrain.data.phantom.write import write_phantom

__all__ = ["Case", "Finding", "PhantomConfig", "phantom_sheet", "sample_case", "write_phantom"]
