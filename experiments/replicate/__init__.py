"""Run every recipe of the papers' methods, small: `make replicate`; README.md."""
