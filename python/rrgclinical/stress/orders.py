"""List the orders that a reward should keep; tabulate how its terms do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical.common.table import aligned
from rrgclinical.stress.pairs import Preferences, agreement
from rrgclinical.stress.planted import Planted, gaming_rows, is_normal

EQUAL, NOT_BETTER, BETTER = "equal", "not better", "better"
NEAR, EXACT = 0.02, 1e-9
"""How far values may lie apart that count as equal: of one meaning in other words, and of two."""

HARMLESS = (
    *("unchanged", "sentences in another order", "reworded", "a sentence said twice"),
    *("idle sentences added", "true denials added"),
)
CRITICAL_ERRORS = ("critical dropped", "critical denied", "critical invented")
_ERRORS = (
    *("doubted", "severity one step off", "severity two steps off", "wrong side"),
    *CRITICAL_ERRORS,
    *("related finding instead", "unrelated finding instead", "minor dropped", "minor invented"),
)
_BLANKS = ("empty", "all findings")


@dataclass(frozen=True)
class Order:
    """`pairs` of perturbations, the first of which should be worth more (or as much).

    kind: EQUAL within NEAR, NOT_BETTER where the second must not gain, BETTER strictly.
    """

    text: str
    pairs: tuple[tuple[str, str], ...]
    kind: str = BETTER


ORDERS: tuple[Order, ...] = (
    Order(
        "another order of sentences = unchanged",
        (("unchanged", "sentences in another order"),),
        EQUAL,
    ),
    Order("reworded = unchanged", (("unchanged", "reworded"),), EQUAL),
    Order(
        "repetition, idle sentences, true denials never pay",
        tuple(("unchanged", name) for name in HARMLESS[3:]),
        NOT_BETTER,
    ),
    Order(
        "any harmless change > any error of meaning",
        tuple((harmless, error) for harmless in HARMLESS for error in _ERRORS),
    ),
    Order("minor dropped > critical dropped", (("minor dropped", "critical dropped"),)),
    Order("minor invented > critical invented", (("minor invented", "critical invented"),)),
    Order("doubted > dropped", (("doubted", "critical dropped"),)),
    Order(
        "severity one step off > two steps > dropped",
        (
            ("severity one step off", "severity two steps off"),
            ("severity two steps off", "critical dropped"),
        ),
    ),
    Order("wrong side > dropped", (("wrong side", "critical dropped"),)),
    Order(
        "severity one step off, doubted, side unsaid > wrong side",
        tuple((n, "wrong side") for n in ("severity one step off", "doubted", "side unsaid")),
    ),
    Order("dropped > denied", (("critical dropped", "critical denied"),)),
    Order("minor denied > critical denied", (("minor denied", "critical denied"),)),
    Order("denials dropped > critical dropped", (("denials dropped", "critical dropped"),)),
    Order(
        "tip told > unsaid > called wrong; a wrong tip unsaid > called right",
        (
            ("tip told", "tip unsaid"),
            ("tip unsaid", "tip called wrong"),
            ("wrong tip unsaid", "wrong tip called right"),
        ),
    ),
    Order(
        "change told > unsaid > reversed",
        (("change told", "change unsaid"), ("change unsaid", "change reversed")),
    ),
    Order(
        "related finding instead > unrelated",
        (("related finding instead", "unrelated finding instead"),),
    ),
    Order(
        "one error > the same and one more",
        (
            ("wrong side", "wrong side and minor dropped"),
            ("minor dropped", "wrong side and minor dropped"),
            ("critical dropped", "critical dropped and invented"),
            ("critical invented", "critical dropped and invented"),
            ("severity two steps off", "severity two steps off and doubted"),
            ("doubted", "severity two steps off and doubted"),
        ),
    ),
    Order(
        "error of an attribute > normal template; one error > empty, all findings",
        (
            *((error, "normal template") for error in _ERRORS[:4]),
            *((error, blank) for error in ("doubted", "wrong side", "minor dropped")
              for blank in _BLANKS),
        ),
    ),
)  # fmt: skip
FIRST_OF_MEANING = 3
"""Index of the first order whose mean is given: those before it are held within bounds."""


@dataclass(frozen=True)
class Tally:
    """Shares of n comparisons."""

    right: float
    tied: float
    wrong: float
    n: int


def tally(order: Order, values: Sequence[Mapping[str, float]]) -> Tally:
    """Count an order over reports, each a mapping of perturbations to values of a term."""
    gaps = np.array(
        [one[a] - one[b] for one in values for a, b in order.pairs if a in one and b in one]
    )
    if not len(gaps):
        return Tally(0.0, 0.0, 0.0, 0)
    if order.kind == EQUAL:
        right, tied = np.abs(gaps) <= NEAR, np.zeros(len(gaps), dtype=bool)
    elif order.kind == NOT_BETTER:
        right, tied = gaps >= -EXACT, np.zeros(len(gaps), dtype=bool)
    else:
        right, tied = gaps > EXACT, np.abs(gaps) <= EXACT
    wrong = ~(right | tied)
    return Tally(float(right.mean()), float(tied.mean()), float(wrong.mean()), len(gaps))


def means(values: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, int]]:
    """Mean value of each perturbation, and of how many reports."""
    names = dict.fromkeys(name for one in values for name in one)
    columns = {name: [one[name] for one in values if name in one] for name in names}
    return {name: (float(np.mean(column)), len(column)) for name, column in columns.items()}


def dearer_than_error(values: Sequence[Mapping[str, float]]) -> list[tuple[str, str]]:
    """Harmless changes that cost more, on average over the same reports, than a critical error."""
    dearer = []
    for harmless in HARMLESS:
        for error in CRITICAL_ERRORS:
            gaps = [one[harmless] - one[error] for one in values if {harmless, error} <= set(one)]
            if gaps and float(np.mean(gaps)) < -EXACT:
                dearer.append((harmless, error))
    return dearer


Scorer = Callable[[Sequence[str], Sequence[str]], Mapping[str, np.ndarray]]
"""From reports and their references `[R]` to the values of each term, `[R]`."""
Values = Mapping[str, Sequence[Mapping[str, float]]]
"""Values of each term: of every report, those of its perturbations."""


def values_of(score: Scorer, planted: Sequence[Planted]) -> Values:
    """Score each perturbation of the reports beside what it was made from."""
    flat = [(i, name, *pair) for i, one in enumerate(planted) for name, pair in one.items()]
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
