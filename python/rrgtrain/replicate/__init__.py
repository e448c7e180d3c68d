"""The papers' claims in miniature: `rrgtrain replicate`; README.md has the table of claims."""
