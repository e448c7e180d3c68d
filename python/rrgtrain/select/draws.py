"""Draw a share of ranked studies, record its samples, measure its worth (DEER, table 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rrgclinical.common import json_reader
from rrgclinical.common.table import aligned
from rrgkern import rank_sample, zero_variance_share
from rrgtrain.errors import UserError

BEGIN = b'{"study": '


@dataclass(frozen=True)
class Record:
    """K reports of one study.

    `labels` [K][14] of 0 and 1, `rewards` [K] or None without truth.
    """

    study: str
    reports: list[str]
    labels: list[list[int]]
    rewards: list[float] | None


def parse_record(path: Path, number: int, line: bytes) -> tuple[str, Record]:
    """Read a line of the file at `path`, after its study; UserError for something else."""
    try:
        record = Record(**json_reader.parse(line, dict))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}:{number}: not a record of `rrgtrain select` ({error}); delete that "
            "line, and the study is sampled again"
        ) from error
    return record.study, record


def labels_of(records: Mapping[str, Record], studies: Sequence[str]) -> np.ndarray:
    """uint8 `[S, K, 14]` in the order of `studies`."""
    return np.asarray([records[name].labels for name in studies], dtype=np.uint8)


def rewards_of(records: Mapping[str, Record], studies: Sequence[str]) -> np.ndarray | None:
    """float64 `[S, K]`; None where a study has no truth to be rewarded by."""
    rows = [records[name].rewards for name in studies]
    return None if any(row is None for row in rows) else np.asarray(rows, dtype=np.float64)


def draw_by_rank(scores: torch.Tensor, share: float, seed: int, weight: str) -> np.ndarray:
    """Draws ⌊share·S + ½⌋ studies, at least one; their indices, ascending.

    Studies are ranked by falling `scores` [S] fp64, ties in an order drawn by the seed. `log_rank`
    draws without replacement with probability ∝ 1 / ln(rank + 1) (DEER eq. 5), `rank` ∝ 1 / rank,
    `top` takes the first.
    """
    sample = rank_sample(scores, share, seed=seed)
    if weight == "log_rank":
        return np.sort(sample.drawn.numpy())
    key = sample.rank.numpy().astype(np.float64)
    if weight == "rank":
        # smallest of exponential / weight: a draw without replacement (Efraimidis and Spirakis)
        key *= np.random.default_rng((seed, len(key))).exponential(size=len(key))
    return np.sort(np.argsort(key, kind="stable")[: len(sample.drawn)])


def least_zero_variance(flat: float, studies: int, count: int, weight: str) -> float:
    """Return a lower bound of the zero-variance share for a draw of `count`, ranked perfectly.

    flat: their share among all `studies`; at best every one of them is ranked last. The value is
    the draw's expectation, with a study's chance taken as 1 - exp(-w·t), t so that the chances add
    up to `count`: right in the limit of many studies.
    """
    last = round(flat * studies)
    if count >= studies:
        return last / studies
    if weight == "top":
        return max(0, count - (studies - last)) / count
    rank = np.arange(1, studies + 1)
    w = 1.0 / (np.log(rank + 1.0) if weight == "log_rank" else rank)

    def chances(t: float) -> np.ndarray:
        return -np.expm1(-w * t)

    low, high = 0.0, 1.0
    while chances(high).sum() < count:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chances(middle).sum() < count else (low, middle)
    return float(chances(high)[studies - last :].sum() / count)


BOUND = "selected, at best"
COLUMNS = {
    "studies": "studies",
    "diversity": "diversity",
    "zero_variance": "zero-variance groups",
    "unique_rewards": "unique rewards",
    "reward_std": "reward std",
}


def reward_statistics(rewards: np.ndarray) -> dict[str, float]:
    """Compute reward statistics of groups `[S, K]`.

    The share whose members all earn the same, distinct rewards per group and their population
    standard deviation, both as means over groups.
    """
    groups, members = rewards.shape
    offsets = torch.arange(groups + 1) * members
    return {
        "zero_variance": float(zero_variance_share(torch.as_tensor(rewards).flatten(), offsets)),
        "unique_rewards": float(np.mean([len(set(row)) for row in rewards.tolist()])),
        "reward_std": float(rewards.std(1).mean()),
    }


def table_7(
    draws: dict[str, np.ndarray], scores: np.ndarray, rewards: np.ndarray | None
) -> dict[str, dict[str, float]]:
    """Make one row a draw.

    `draws` maps names to indices into `scores` [S] and `rewards` [S, K].
    """
    return {
        name: {
            "studies": float(len(chosen)),
            "diversity": float(scores[chosen].mean()),
            **({} if rewards is None else reward_statistics(rewards[chosen])),
        }
        for name, chosen in draws.items()
    }


def print_statistics(rows: dict[str, dict[str, float]]) -> None:
    """Print the rows as a table."""
    shown = [key for key in COLUMNS if any(key in row for row in rows.values())]
    cells = [[name, *(_cell(key, row.get(key)) for key in shown)] for name, row in rows.items()]
    print("\n".join(aligned([["draw", *(COLUMNS[key] for key in shown)], *cells])))


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "zero_variance":
        return f"{100 * value:.1f} %"
    return f"{value:.0f}" if key == "studies" else f"{value:.3f}"
