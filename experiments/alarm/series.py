"""Write the validations of a run small, and read them as the alarm does."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rrgclinical.severity import AXES, Validated, alarm

DIGITS = 6
Columns = dict[str, list[float]]


def columns_of(reward: Iterable[float], counts: Mapping[str, Iterable[Any]]) -> Columns:
    """Name each list of R numbers of a validation: the reward's, and two an axis."""
    columns = {"reward": _numbers(reward)}
    for name in AXES:
        columns[name], columns[f"{name}/of"] = map(_numbers, counts[name])
    return columns


def packed(validations: Sequence[Columns]) -> str:
    """Write columns as base64 of compressed JSON: a tenth of its size."""
    text = json.dumps(validations, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text, 9)).decode()


def unpacked(text: str) -> list[Validated]:
    """Read what `packed` gave; studies are numbered."""
    past = []
    for one in json.loads(zlib.decompress(base64.b64decode(text))):
        columns = {name: np.asarray(values, dtype=np.float64) for name, values in one.items()}
        counts = {name: (columns[name], columns[f"{name}/of"]) for name in AXES}
        past.append(
            Validated(tuple(map(str, range(len(one["reward"])))), columns["reward"], counts)
        )
    return past


def replayed(run: Mapping[str, Any]) -> list[dict[str, float]]:
    """Compute the alarm after each validation of a run."""
    past = unpacked(run["columns"])
    return [alarm(past[: end + 1]) for end in range(len(past))]


def _numbers(values: Iterable[float]) -> list[float]:
    """Write whole numbers without a point: most of them are."""
    return [int(v) if v == int(v) else round(float(v), DIGITS) for v in values]
