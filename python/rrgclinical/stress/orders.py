"""List the orders that a reward should keep, and tally them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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
    reason: str
    pairs: tuple[tuple[str, str], ...]
    kind: str = BETTER


ORDERS: tuple[Order, ...] = (
    Order(
        "another order of sentences = unchanged",
        "the order of sentences says nothing of the patient",
        (("unchanged", "sentences in another order"),),
        EQUAL,
    ),
    Order(
        "reworded = unchanged",
        "words are free",
        (("unchanged", "reworded"),),
        EQUAL,
    ),
    Order(
        "repetition, idle sentences, true denials never pay",
        "or a policy fills its reports with them",
        tuple(("unchanged", name) for name in HARMLESS[3:]),
        NOT_BETTER,
    ),
    Order(
        "any harmless change > any error of meaning",
        "style is not worth a finding",
        tuple((harmless, error) for harmless in HARMLESS for error in _ERRORS),
    ),
    Order(
        "minor dropped > critical dropped",
        "a missed granuloma harms less than a missed mass",
        (("minor dropped", "critical dropped"),),
    ),
    Order(
        "minor invented > critical invented",
        "an invented pneumothorax is treated",
        (("minor invented", "critical invented"),),
    ),
    Order(
        "doubted > dropped", "a suspicion is looked at again", (("doubted", "critical dropped"),)
    ),
    Order(
        "severity one step off > two steps > dropped",
        "nearer is better",
        (
            ("severity one step off", "severity two steps off"),
            ("severity two steps off", "critical dropped"),
        ),
    ),
    Order(
        "wrong side > dropped",
        "the finding is looked for, and found on the image",
        (("wrong side", "critical dropped"),),
    ),
    Order(
        "severity one step off, doubted, side unsaid > wrong side",
        "a tube may be put into the wrong side",
        tuple((n, "wrong side") for n in ("severity one step off", "doubted", "side unsaid")),
    ),
    Order(
        "dropped > denied",
        "a denial ends the search",
        (("critical dropped", "critical denied"),),
    ),
    Order(
        "minor denied > critical denied",
        "as for what is dropped",
        (("minor denied", "critical denied"),),
    ),
    Order(
        "denials dropped > critical dropped",
        "normal statements are the report's least part",
        (("denials dropped", "critical dropped"),),
    ),
    Order(
        "tip told > unsaid > called wrong; a wrong tip unsaid > called right",
        "a tube in a bronchus kills within the hour",
        (
            ("tip told", "tip unsaid"),
            ("tip unsaid", "tip called wrong"),
            ("wrong tip unsaid", "wrong tip called right"),
        ),
    ),
    Order(
        "change told > unsaid > reversed",
        "treatment follows the change",
        (("change told", "change unsaid"), ("change unsaid", "change reversed")),
    ),
    Order(
        "related finding instead > unrelated",
        "an opacity for a consolidation is nearly right",
        (("related finding instead", "unrelated finding instead"),),
    ),
    Order(
        "one error > the same and one more",
        "or nothing is left to lose",
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
        "or a policy collapses onto them",
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
