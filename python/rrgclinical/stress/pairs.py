"""Hold a term against preferences between pairs of reports, as a reader has set them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rrgclinical.common.errors import UserError
from rrgclinical.metrics import bootstrap_weights, tails
from rrgclinical.scorecard import read_rows, require_length

COLUMNS = ("reference", "first", "second", "preferred")
_WORDS = {"first": 1.0, "second": -1.0, "tie": 0.0, "tied": 0.0, "equal": 0.0}
_LEVEL = 0.95
_MOST = 4000


@dataclass(frozen=True)
class Preferences:
    """N pairs: references, both reports, and `preferred` float64 `[N]`, above 0 for the first."""

    references: list[str]
    first: list[str]
    second: list[str]
    preferred: np.ndarray

    def counts(self) -> str:
        """Say how many pairs prefer which report: a number misread shows there."""
        first, second = ((self.preferred * sign > 0).sum() for sign in (1, -1))
        tied = len(self.preferred) - first - second
        total = len(self.preferred)
        noun = "pair" if total == 1 else "pairs"
        return f"{total} {noun}: first better in {first}, second in {second}, {tied} tied"


@dataclass(frozen=True)
class PairAgreement:
    """Pairs that a term orders right, wrong, and ties; tau-b with its 95 % interval."""

    right: int
    wrong: int
    tied: int
    tau: float
    low: float
    high: float


def read_pairs(path: Path) -> Preferences:
    """Read a file of pairs: CSV, TSV, JSONL or JSON with the columns of COLUMNS.

    `preferred` is first, second or tie, or a number: by how much the first is better. UserError
    names a row without a preference, one whose reports are no texts or whose reference is blank,
    and a file without a preference that is decided. A blank report is an empty one.
    """
    rows, _ = read_rows(path, None, COLUMNS[3:])
    if lacking := [name for name in COLUMNS if name not in rows[0]]:
        raise UserError(
            f"{path} has no column {', '.join(lacking)}; wanted {', '.join(COLUMNS)}, its columns "
            f"are {', '.join(rows[0])}"
        )
    if len(rows) > _MOST:
        raise UserError(f"{path} has {len(rows)} pairs; wanted at most {_MOST}")
    preferred = [_preference(row.where, row.get(COLUMNS[3])) for row in rows]
    if set(preferred) == {1.0, 2.0}:  # each would be read as: the first is better
        raise UserError(
            f"{path}: preferred holds 1 and 2 alone; wanted first, second, tie, or by how much the "
            "first is better: write first and second where the report preferred is meant"
        )
    if not any(preferred):
        raise UserError(f"{path} has no pair with a preference; all are tied")
    references, first, second = (
        [_text(row.where, name, row.get(name)) for row in rows] for name in COLUMNS[:3]
    )
    return Preferences(references, first, second, np.array(preferred))


def _text(where: str, name: str, cell: object) -> str:
    if not isinstance(cell, str):
        problem = "is missing" if cell is None else "is no text"
        raise UserError(f"{where}: {name} {problem}; wanted the text of a report")
    if name == COLUMNS[0] and not cell.strip():
        raise UserError(f"{where}: {name} is blank; wanted the report that both are held to")
    require_length(where, name, cell)
    return cell


def _preference(where: str, cell: object) -> float:
    word = str(cell if cell is not None else "").strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        problem = f"is {word!r}" if word else "is missing"
        raise UserError(f"{where}: preferred {problem}; wanted first, second, tie or a number")
    return value


def agreement(
    preferred: np.ndarray, gaps: np.ndarray, *, resamples: int = 1000, seed: int = 0
) -> PairAgreement:
    """Count pairs with a preference, and take tau-b of all.

    preferred, gaps: float64 `[N]`, by how much the first report is better to the reader and to the
    term. Which report is called first decides nothing: each pair counts in both directions.
    """
    decided = preferred != 0
    signs = np.sign(preferred[decided]) * np.where(np.abs(gaps) <= 1e-9, 0.0, gaps)[decided]
    both = np.concatenate([preferred, -preferred]), np.concatenate([gaps, -gaps])
    x, y = (np.sign(np.subtract.outer(one, one)).astype(np.float32) for one in both)
    n = len(preferred)
    drawn = np.concatenate(list(bootstrap_weights(n, resamples, seed)))
    weights = np.concatenate([np.ones((1, n)), drawn]).astype(np.float32)
    taus = _tau_b(x, y, np.concatenate([weights, weights], axis=1))
    low, high = np.quantile(taus[1:], tails(_LEVEL, n))
    right, wrong = int((signs > 0).sum()), int((signs < 0).sum())
    tied = len(signs) - right - wrong
    return PairAgreement(right, wrong, tied, float(taus[0]), float(low), float(high))


def _tau_b(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Kendall's tau-b `[B]` under weights `[B, M]` of M values; 0 where one side has no order."""

    def total(signs: np.ndarray) -> np.ndarray:
        return np.einsum("bm,bm->b", weights @ signs, weights).astype(np.float64)

    scale = np.sqrt(total(np.abs(x)) * total(np.abs(y)))
    return np.divide(total(x * y), scale, out=np.zeros(len(weights)), where=scale > 0)
