"""Tabulate how a reward's terms value planted errors, gaming, and a reader's pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from rrgclinical.common.table import aligned
from rrgclinical.stress.orders import FIRST_OF_MEANING, ORDERS, means, tally
from rrgclinical.stress.pairs import Preferences, agreement
from rrgclinical.stress.planted import Planted, gaming_rows, is_normal

Scorer = Callable[[Sequence[str], Sequence[str]], Mapping[str, np.ndarray]]
"""From reports and their references `[R]` to the values of each term, `[R]`."""
Values = Mapping[str, Sequence[Mapping[str, float]]]
"""Values of each term: of every report, those of its perturbations."""


def values_of(score: Scorer, planted: Sequence[Planted]) -> Values:
    """Score each perturbation of the reports beside what it was made from."""
    flat = [(i, name, *pair) for i, one in enumerate(planted) for name, pair in one.pairs.items()]
    scored = score([row[3] for row in flat], [row[2] for row in flat])
    values: dict[str, list[dict[str, float]]] = {term: [{} for _ in planted] for term in scored}
    for term, column in scored.items():
        for (i, name, _, _), value in zip(flat, column, strict=True):
            values[term][i][name] = float(value)
    return values


def means_table(values: Values) -> str:
    """Tabulate the mean value of each perturbation by each term."""
    each = {term: means(of) for term, of in values.items()}
    rows = next(iter(each.values()))
    return _table(
        ["perturbation", "n", *values],
        ([name, str(n), *(f"{means[name][0]:.3f}" for means in each.values())]
         for name, (_, n) in rows.items()),
    )  # fmt: skip


def orders_table(values: Values) -> str:
    """Tabulate how often each term keeps each order, in percent."""
    tallies = {term: [tally(order, of) for order in ORDERS] for term, of in values.items()}
    first = next(iter(tallies.values()))
    rows = [
        [f"{k + 1} {order.text}", str(first[k].n),
         *(_shares(of[k].right, of[k].tied, of[k].wrong) for of in tallies.values())]
        for k, order in enumerate(ORDERS)
    ]  # fmt: skip
    averages = []
    for of in tallies.values():
        meant = [one for one in of[FIRST_OF_MEANING:] if one.n]
        averages.append(
            _shares(*(float(np.mean([getattr(one, kind) for one in meant]))
                      for kind in ("right", "tied", "wrong")))
        )  # fmt: skip
    rows.append([f"mean of {FIRST_OF_MEANING + 1} to {len(ORDERS)}", "", *averages])
    return _table(["order (right/tied/wrong %)", "n", *values], rows)


def gaming_table(score: Scorer, terms: Sequence[str], texts: Sequence[str]) -> str:
    """Tabulate the mean value of reports that say nothing, by normal and abnormal references."""
    normal = np.array([is_normal(text) for text in texts])
    groups = [(name, members) for name, members in (("normal", normal), ("abnormal", ~normal))
              if members.any()]  # fmt: skip
    rows = []
    for name, reports in gaming_rows(texts).items():
        scored = score(reports, texts)
        cells = ["/".join(f"{scored[term][members].mean():.2f}" for _, members in groups)
                 for term in terms]  # fmt: skip
        rows.append([name, *cells])
    counts = " / ".join(f"{members.sum()} {name}" for name, members in groups)
    return _table([f"report, on {counts} references", *terms], rows)


def agreement_table(score: Scorer, pairs: Preferences) -> str:
    """Tabulate how often each term prefers what a reader prefers."""
    first, second = score(pairs.first, pairs.references), score(pairs.second, pairs.references)
    rows = []
    for term in first:
        one = agreement(pairs.preferred, first[term] - second[term])
        counts = [str(one.right), str(one.wrong), str(one.tied)]
        rows.append([term, *counts, f"{one.tau:.3f} [{one.low:.3f}, {one.high:.3f}]"])
    return _table(["term", "right", "wrong", "tied", "tau-b"], rows)


def _shares(right: float, tied: float, wrong: float) -> str:
    return "/".join(f"{100 * share:.0f}" for share in (right, tied, wrong))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([*aligned([header, *rows]), ""])
