"""Tell each claim in words and tables, from the results alone: no data, no checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.iu_evidence.arms import ARMS, FIXED, RL, SELECT, SFT, Hypothesis
from experiments.iu_evidence.judge import (
    HOLDS,
    POPULATIONS,
    SEVEN,
    Difference,
    checked,
    measured,
    pooled,
    verdict,
)
from experiments.iu_evidence.tasks import FoldTask
from experiments.iu_evidence.text import aligned
from experiments.jobs.results import Result
from rrgreport import numbers
from rrgtrain.errors import UserError

NOT_RUN, NOT_JUDGED = "not run", "not judged"
COLUMNS = ("f1_13", "macro_14", "micro_5", "mesh", "bleu4", "unheard", "words")
OF_PAPERS = (*SEVEN, "avg", "f1_13", "mesh", "reward", "words")
"""Columns of a claim above a floor."""
LABELS = ("f1_13", "avg", "macro_14", "micro_5", "recall_13", "precision_13", "sample_f1")
"""Measures of labels, which the human codes judge second."""
Results = Mapping[str, Sequence[Result]]
"""By arm, one result a fold, in the order of the folds."""


def results_of(
    claim: Hypothesis, out: Path, folds: Sequence[int], *, quick: bool
) -> Results | None:
    """Read the results of a claim's arms; None where one is missing.

    UserError where arms of a fold were trained from different trainings of one start.
    """
    tasks = {n: [FoldTask(ARMS[n], f, out, quick) for f in folds] for n in claim.arms}
    if not all(task.result.is_file() for row in tasks.values() for task in row):
        return None
    results = {name: [Result.load(task.result) for task in row] for name, row in tasks.items()}
    for index, fold in enumerate(folds):
        _require_one_start({n: row[index] for n, row in results.items()}, fold)
    return results


def digest_of(result: Result) -> str:
    """Digest what a start wrote: one that is trained anew may be another."""
    text = json.dumps(result.facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _require_one_start(results: Mapping[str, Result], fold: int) -> None:
    starts: dict[str, dict[str, str]] = {}
    for name, result in results.items():
        if "start" in result.facts:
            starts.setdefault(ARMS[name].start, {})[result.facts["start"]] = name
        if ARMS[name].kind == SFT:
            starts.setdefault(name, {})[digest_of(result)] = name
    for start, by_digest in starts.items():
        if len(by_digest) > 1:
            raise UserError(
                f"fold {fold}: {', '.join(by_digest.values())} come from different trainings of "
                f"{start}; delete all but those of one and run the rest again"
            )


def told(claim: Hypothesis, results: Results | None) -> list[str]:
    """A claim with its verdict, tables and checks; "not run" where a result is missing."""
    lines = [f"## {claim.name} ({claim.paper})", "", claim.says, ""]
    if results is None:
        return [*lines, f"Verdict: {NOT_RUN}."]
    outcomes, checks = [], []
    for check in claim.checks:
        between, outcome = checked(check, results)
        outcomes.append(outcome)
        checks.append(f"- {check.text}: {spoken(between)}: {outcome}")
        if check.measure in LABELS:
            human, _ = checked(replace(check, measure="mesh"), results)
            checks.append(f"  - by the human codes: {spoken(human)}")
    lines += [f"Verdict: {_decided(claim, results, outcomes, checks)}.", ""]
    judged = [n for n in results if ARMS[n].kind in (SFT, RL, FIXED)]
    columns = OF_PAPERS if claim.floor else COLUMNS
    for population in POPULATIONS if judged else ():
        rows = [[population, *columns, "entropy"]]
        rows += [_row(name, results[name], population, columns) for name in judged]
        lines += [*aligned(rows, right=range(1, len(rows[0]))), ""]
    for name in results:
        if ARMS[name].kind == SELECT:
            lines += [*_draws(results[name]), ""]
    return [*lines, *_over_validations(results), *checks, *_gradients(results)]


def _decided(
    claim: Hypothesis, results: Results, outcomes: Sequence[str], checks: list[str]
) -> str:
    """The verdict in words; a claim of too few folds or below its floor has none.

    The floor's own line is put before `checks`.
    """
    floor = HOLDS
    if claim.floor:
        between, floor = checked(claim.floor, results)
        checks.insert(0, f"- floor: {claim.floor.text}: {spoken(between)}: {floor}")
    folds = len(next(iter(results.values())))
    if folds < len(claim.folds):
        return f"{NOT_RUN}, {folds} of {len(claim.folds)} folds, which decide nothing"
    if floor != HOLDS:
        return f"{NOT_JUDGED}, the floor does not hold"
    return verdict(outcomes)


def spoken(between: Difference) -> str:
    """A difference in points with its interval and folds."""
    folds = " ".join(f"{100 * value:+.1f}" for value in between.folds)
    low, high = 100 * between.low, 100 * between.high
    return f"{100 * between.value:+.1f} [{low:+.1f}, {high:+.1f}], folds {folds}"


def _row(
    name: str, results: Sequence[Result], population: str, columns: Sequence[str]
) -> list[str]:
    cells = [name]
    for column in columns:
        value = pooled([measured(r, column, population) for r in results])[0]
        cells.append(f"{value:.1f}" if column == "words" else f"{value:.3f}")
    curves = [result.facts["curves"].get("entropy") for result in results]
    last = [sum(curve[-5:]) / len(curve[-5:]) for curve in curves if curve]
    return [*cells, f"{sum(last) / len(last):.2f}" if last else numbers.MISSING]


def _over_validations(results: Results) -> list[str]:
    """Each arm's first and last validation, and its groups of one reward: means over the folds.

    In brackets how many folds have the axis, where not all do: none found, no side to be right.
    """
    logged = {n: row for n, row in results.items() if "validations" in row[0].facts}
    if not logged:
        return []
    every = [result.facts["validations"] for row in logged.values() for result in row]
    names = [name for name in every[0] if name != "step" and all(name in of for of in every)]
    rows = [["first and last validation", *logged]]
    for name in names:
        curves = [[r.facts["validations"][name] for r in row] for row in logged.values()]
        rows.append([name, *(f"{_mean_at(0, c)} to {_mean_at(-1, c)}" for c in curves)])
    flat = [
        pooled([measured(r, "zero_variance", "all") for r in row])[0] for row in logged.values()
    ]
    rows.append(["zero_variance", *(f"{share:.3f}" for share in flat)])
    return [*aligned(rows, right=range(1, len(rows[0]))), ""]


def _mean_at(index: int, curves: Sequence[Sequence[float | None]]) -> str:
    values = [value for curve in curves if (value := curve[index]) is not None]
    fewer = f" ({len(values)})" if len(values) < len(curves) else ""
    return f"{sum(values) / len(values):.3f}{fewer}" if values else numbers.MISSING


def _draws(results: Sequence[Result]) -> list[str]:
    rows = [["draw", "zero variance", "bound"]]
    for draw in results[0].facts["draws"]:
        value = pooled([measured(r, "zero_variance", "all", draw) for r in results])[0]
        bounds = [r.facts["bounds"].get(draw) for r in results]
        bound = sum(bounds) / len(bounds) if None not in bounds else None
        rows.append([draw, f"{value:.3f}", numbers.MISSING if bound is None else f"{bound:.3f}"])
    return aligned(rows, right=(1, 2))


def _gradients(results: Results) -> list[str]:
    """Where the gradient of edits lies and what rules gain, of the arms that edit."""
    lines = []
    for name, row in results.items():
        shares = shares_of(row)
        if not shares:
            continue
        means = {k: sum(s[k] for s in shares) / len(shares) for k in shares[0]}
        places = ", ".join(f"{place} {share:.0%}" for place, share in means.items())
        gains = ", ".join(f"{rules} {g:+.3f} ({n})" for rules, g, n in gains_of(row))
        lines.append(f"- {name}: gradient {places} the change; gains by rules {gains}")
    return lines


def shares_of(results: Sequence[Result]) -> list[dict[str, float]]:
    """The gradient's shares by place, of each fold; none where nothing was edited."""
    return [r.facts["gradient_share"] for r in results if r.facts.get("gradient_share")]


def gains_of(results: Sequence[Result]) -> list[tuple[str, float, int]]:
    """Rules, mean gain in reward and count of edits, over all folds."""
    sums: dict[str, list[Any]] = {}
    for result in results:
        for rules, row in result.facts["gains"].items():
            own = sums.setdefault(rules, [0.0, 0])
            own[0] += row["gain"] * row["edits"]
            own[1] += row["edits"]
    return [(rules, total / count, count) for rules, (total, count) in sorted(sums.items())]
