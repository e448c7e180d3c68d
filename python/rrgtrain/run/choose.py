"""Choose one of a study's N reports: minimum Bayes risk, or the longest that agrees.

The candidates stand for what the policy believes. With the gain g(i, j) of candidate i beside j as
its reference, "mbr" takes argmax_i mean_j g(i, j): the least expected loss 1 - g (Kumar and Byrne,
2004). "longest_agreeing" takes the longest of the half with the highest gains. Ties go to the
first. The gain is a term of the reward: all pairs of all studies are one call of it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rrgclinical.common.nothing import is_nothing
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.service import refuse_left_out
from rrgtrain.run.data import PROBE
from rrgtrain.schema import Recipe

MOST = 1000
"""Candidates of a study; the pairs grow as their square."""


def gains(studies: Sequence[Sequence[str]], rewards: RewardService) -> np.ndarray:
    """Compute gains of S studies of N candidates, float64 [S, N, N]: candidate, reference.

    Beside a report that says nothing all gain 0, and it gains -inf.
    """
    silent = {text for text in {*itertools.chain(*studies)} if is_nothing(text)}
    every = (pair for texts in studies for pair in itertools.product(texts, repeat=2))
    of = {pair: -np.inf if pair[0] in silent else 0.0 for pair in every}
    pairs = [pair for pair in of if silent.isdisjoint(pair)]
    sides = [[pair[k] for pair in pairs] for k in (0, 1)]
    ((_, gained),) = rewards.measure([*rewards.settings.terms], *sides)
    if isinstance(gained, RewardError):
        raise gained
    of |= zip(pairs, gained, strict=True)
    return np.array([[[of[a, b] for b in texts] for a in texts] for texts in studies])


def mbr(gained: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the candidate of the highest mean gain, int64 [S]; `lengths` do not count."""
    return gained.mean(2).argmax(1)


def longest_agreeing(gained: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the longest of the half with the highest mean gains, int64 [S]."""
    means = gained.mean(2)
    median = np.sort(means, axis=1)[:, means.shape[1] // 2, None]
    return np.where(means >= median, lengths, -1).argmax(1)


RULES = {"mbr": mbr, "longest_agreeing": longest_agreeing}


@dataclass(frozen=True)
class Chooser:
    """Choose among N reports of each study by a rule and a gain."""

    candidates: int
    rule: str
    rewards: RewardService

    def __call__(self, studies: Sequence[Sequence[str]]) -> list[int]:
        """Return each study's chosen candidate, by its place; all have as many."""
        if not studies:
            return []
        lengths = np.array([[len(text.split()) for text in texts] for texts in studies])
        return [*map(int, RULES[self.rule](gains(studies, self.rewards), lengths))]


def chooser(
    recipe: Recipe, candidates: int | None, rule: str | None = None, term: str | None = None
) -> Chooser | None:
    """Open a term, `severity` by default, as the gain; None for one candidate.

    UserError where the term is unknown or cannot be had, or all candidates would be equal.
    """
    if candidates is None and (rule or term):
        raise UserError("--choose and --by are of --candidates N; give it too")
    if candidates in (None, 1):
        return None
    if not 1 <= candidates <= MOST or not recipe.generate.temperature:
        raise UserError(
            f"--candidates {candidates} at generate.temperature={recipe.generate.temperature:g}; "
            f"wanted 1 to {MOST}, and for them to differ a temperature, as generate.temperature=1"
        )
    refuse_left_out(recipe.reward, "--candidates")
    own: dict[str, Any] = {"terms": {term or "severity": 1.0}, "starts": {}, "blocks": "none"}
    rewards = RewardService(replace(recipe.reward, against="report", **own))
    rewards([PROBE], [PROBE])  # a term that lacks its model says so before the policy is read
    return Chooser(candidates, rule or "mbr", rewards)


def seeds_of(seed: int, study: str, candidates: int) -> list[int]:
    """Make seeds of the study's id: neighbours and stops change no report.

    The first candidate is what is drawn without others.
    """
    keys = [f"{seed} {study}" + f" {k}" * (k > 0) for k in range(candidates)]
    return [int.from_bytes(hashlib.sha256(each.encode()).digest()[:7]) for each in keys]
