"""Procedural radiographs that show what their reports say, from a seed."""

from __future__ import annotations

from rrgphantom.case import Case, Finding, sample_case
from rrgphantom.config import PhantomConfig
from rrgphantom.sheet import phantom_sheet
from rrgphantom.write import write_phantom

__all__ = ["Case", "Finding", "PhantomConfig", "phantom_sheet", "sample_case", "write_phantom"]
