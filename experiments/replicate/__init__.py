"""Run every recipe of the papers' methods, small: `python -m experiments.replicate`; README.md."""
