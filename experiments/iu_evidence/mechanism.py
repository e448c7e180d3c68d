"""Measure where the gradient of edits lies, and what each rule gains.

Members of a group that share a prefix share its gradient: at one (prefix, token) the coefficients
of ∂loss/∂log p add up, so a report and its edit cancel before the first change as far as their
advantages are opposite. Of these sums the norm is taken over three places of each edit: before the
first changed token, at the changed ones, behind them. An inserted or replaced span ends where the
rest is the parent's again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrgtrain.algorithms import Group
from rrgtrain.train.step_record import StepRecord

PLACES = ("before", "at", "behind")


def places(edited: Sequence[int], parent: Sequence[int]) -> tuple[int, int]:
    """Return the first token of the change in `edited`, and the first behind it."""
    first = 0
    while first < min(len(edited), len(parent)) and edited[first] == parent[first]:
        first += 1
    tail = 0
    room = min(len(edited), len(parent)) - first
    while tail < room and edited[len(edited) - 1 - tail] == parent[len(parent) - 1 - tail]:
        tail += 1
    return first, len(edited) - tail


def squares(group: Group, weights: Sequence[float]) -> dict[str, float]:
    """Sum the squared coefficients of a group's edits by place; `weights` one a member's token.

    Of several edits with one prefix each (prefix, token) counts once, at the place where the first
    of them has it.
    """
    totals: dict[tuple[int, ...], float] = defaultdict(float)
    texts = [tuple(member.ids.tolist()) for member in group.members]
    for ids, weight in zip(texts, weights, strict=True):
        for end in range(1, len(ids) + 1):
            totals[ids[:end]] += weight
    sums = dict.fromkeys(PLACES, 0.0)
    counted: set[tuple[int, ...]] = set()
    for member, ids in zip(group.members, texts, strict=True):
        if member.origin != "edited" or member.parent is None:
            continue
        first, behind = places(ids, texts[member.parent])
        for end in range(1, len(ids) + 1):
            if ids[:end] in counted:
                continue
            counted.add(ids[:end])
            at = end - 1
            place = "before" if at < first else "at" if at < behind else "behind"
            sums[place] += totals[ids[:end]] ** 2
    return sums


@dataclass(frozen=True)
class EditRecorder:
    """Record each step's shares of the gradient's norm, and every edit's gain by its rules.

    file: JSON lines, one a step; of a step that is taken again after a resume the last counts.
    """

    file: Path

    def __call__(self, record: StepRecord) -> None:
        batch = record.batch
        rewards, firsts = batch.rewards.tolist(), batch.offsets[:-1]
        # one advantage a member: that of its first token
        weights = (batch.advantages[firsts] * batch.scale).tolist()
        sums, gains, begin = dict.fromkeys(PLACES, 0.0), list[tuple[str, float]](), 0
        for group in batch.groups:
            part = slice(begin, begin + len(group.members))
            begin, own = part.stop, rewards[part]
            for place, value in squares(group, weights[part]).items():
                sums[place] += value
            for member, reward in zip(group.members, own, strict=True):
                if member.origin == "edited" and member.parent is not None:
                    rules = "+".join(sorted({rule for rule, _, _ in member.steps}))
                    gains.append((rules, reward - own[member.parent]))
        total = sum(value**0.5 for value in sums.values())
        shares = {place: value**0.5 / total for place, value in sums.items()} if total else None
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": record.step, "shares": shares, "gains": gains}) + "\n")

    def summary(self) -> dict[str, Any]:
        """Mean shares over steps, and count and mean gain of each set of rules."""
        rows = map(json.loads, self.file.read_text(encoding="utf-8").splitlines())
        steps = [row for _, row in sorted({row["step"]: row for row in rows}.items())]
        shares = [row["shares"] for row in steps if row["shares"]]
        means = {p: sum(row[p] for row in shares) / len(shares) for p in PLACES} if shares else {}
        by_rules: dict[str, list[float]] = {}
        for rules, gain in (pair for row in steps for pair in row["gains"]):
            by_rules.setdefault(rules, []).append(gain)
        gains = {
            rules: {"edits": len(values), "gain": round(sum(values) / len(values), 6)}
            for rules, values in sorted(by_rules.items())
        }
        return {"gradient_share": {k: round(v, 6) for k, v in means.items()}, "gains": gains}
