"""METEOR with a short table of paraphrases, for tests that ask for it."""

from __future__ import annotations

from tests.rrgclinical.paraphrases import few_paraphrases, short_package

__all__ = ["few_paraphrases", "short_package"]
