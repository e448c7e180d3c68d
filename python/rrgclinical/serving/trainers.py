"""Give verl, ms-swift and EasyR1 the scores of a reward service, one function each.

The address stands in the environment variable RRG_REWARD_URL, or is passed as `url`. A service that
is gone, slow or wrong raises `ServiceError`, which ends the trainer: it is never a 0.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from rrgclinical.common.arguments import listed
from rrgclinical.serving.client import RewardClient

URL = "RRG_REWARD_URL"
# verl scores sample by sample: so many are asked for at a time, and the service batches them.
AT_ONCE = 64


async def verl_reward(  # noqa: PLR0913
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,
    *,
    url: str | None = None,
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
    **others: Any,
) -> dict[str, float]:
    """Score one completion as verl's `custom_reward_function` (0.9.1, which awaits it).

    `score` is the total; the terms stand beside it, for the log and for `gdpo_reward_keys`.
    The address and tokenizer of a reward model of verl's are not looked at.

    Raises ValueError for `reward_kwargs` other than `url`.
    """
    _require_no_other(others, "reward_kwargs")
    call = asyncio.get_running_loop().run_in_executor(
        _threads(), _client(url), [solution_str], [ground_truth]
    )
    scores = {name: float(values[0]) for name, values in (await call).items()}
    return {"score": scores.pop("total"), **scores}


def swift_reward(
    completions: Sequence[str],
    *,
    column: str = "report",
    url: str | None = None,
    **columns: Any,
) -> list[float]:
    """Score a batch as an ORM of ms-swift does.

    `column` of its data set has the references.

    Raises ValueError for a data set without it.
    """
    if not isinstance(column, str) or column not in columns:
        lists = ", ".join(sorted(k for k, v in columns.items() if isinstance(v, list))) or "none"
        raise ValueError(f"the data set has no column {column!r}, it has {lists}; pass column=")
    return _client(url)(completions, columns[column])["total"].tolist()


def easyr1_pairs(reward_inputs: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """List `response` and `ground_truth` of the rows that EasyR1 hands to a `reward_function`.

    Raises ValueError for a row without them, or one row alone, TypeError for what is no list.
    """
    if isinstance(reward_inputs, Mapping):
        raise ValueError("one row; wanted a list of them: worker.reward.reward_type=batch")
    rows = listed(reward_inputs, "reward_inputs", "rows")
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(
                f"row {place} is {type(row).__name__}; wanted response and ground_truth by name"
            )
        if lacking := [name for name in ("response", "ground_truth") if name not in row]:
            names = ", ".join(map(str, row)) or "none"
            raise ValueError(f"row {place} has no {lacking[0]!r}; it has {names}")
    return [row["response"] for row in rows], [row["ground_truth"] for row in rows]


def easyr1_reward(
    reward_inputs: Sequence[Mapping[str, Any]], *, url: str | None = None, **others: Any
) -> list[dict[str, float]]:
    """Score a batch as EasyR1's `reward_function`: `overall`, and the terms beside it.

    Raises as `easyr1_pairs`, and ValueError for `reward_function_kwargs` other than `url`.
    """
    _require_no_other(others, "reward_function_kwargs")
    scores = _client(url)(*easyr1_pairs(reward_inputs))
    columns = {"overall" if name == "total" else name: v.tolist() for name, v in scores.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _require_no_other(others: Mapping[str, Any], section: str) -> None:
    if others:
        raise ValueError(f"{section} has {next(iter(others))!r}; wanted url alone")


def _client(url: str | None) -> RewardClient:
    if url is None or url == "":
        url = os.environ.get(URL) or "http://127.0.0.1:8008"
    return _opened(url) if isinstance(url, str) else RewardClient(url)


@lru_cache(maxsize=8)
def _opened(url: str) -> RewardClient:
    return RewardClient(url)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, "reward client")
