"""The papers' claims in miniature: `make replicate`; README.md has the table of claims."""
