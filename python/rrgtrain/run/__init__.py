"""Surround a loop: open, check, run the stages, report."""

from rrgtrain.run.preflight import check_data

__all__ = ["check_data"]
