"""Checkpoints and the run directory."""
