"""Measure a draw's worth to reinforcement learning (DEER, table 7)."""

from __future__ import annotations

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rrgkern import zero_variance_share

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


def print_statistics(rows: dict[str, dict[str, float]], console: Console | None = None) -> None:
    """The rows as a table."""
    shown = [key for key in COLUMNS if any(key in row for row in rows.values())]
    table = Table("draw", *(COLUMNS[key] for key in shown), box=None)
    for name, row in rows.items():
        table.add_row(name, *(_cell(key, row.get(key)) for key in shown))
    (console or Console()).print(table)


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "zero_variance":
        return f"{100 * value:.1f} %"
    return f"{value:.0f}" if key == "studies" else f"{value:.3f}"
