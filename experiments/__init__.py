"""Experiments with the trainer, and the results that were recorded; not in the wheel."""
