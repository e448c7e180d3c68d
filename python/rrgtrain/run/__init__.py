"""Surround a loop: open, check, run the stages, report."""
