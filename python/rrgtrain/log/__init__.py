"""Metrics, step records and samples of a run."""
