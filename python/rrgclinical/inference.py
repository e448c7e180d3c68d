"""Place a network on a device, cut reports into batches, digest what made a result.

The digest, of weights, settings and code, keys caches on disk.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rrgclinical.common.errors import UserError, unreadable

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

# Padded tokens a batch. On two CPU cores 8 reports of 118 tokens went 1.4 times as fast as 64
# in fp32; a GPU needs large batches to be busy (its best value is unmeasured).
CPU_TOKENS = 1024
GPU_TOKENS = 32768
# What torch.load raises for a file that is no checkpoint, depending on its first bytes.
_UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError)
_NAMED = 4
"""Names that a line about a file shows of each kind of fault."""


@dataclass(frozen=True)
class Placement:
    """Device and dtype of an encoder, and the largest padded batch in tokens."""

    device: torch.device
    dtype: torch.dtype
    token_budget: int


def place_network(
    owner: str, device: str | torch.device, dtype: str, token_budget: int | None
) -> Placement:
    """Check where and how a network runs.

    Args:
        owner: name of the backend, for messages.
        device: where the network runs.
        dtype: "fp32" or "bf16".
        token_budget: by default 1024 on a CPU, 32768 elsewhere.

    Raises:
        UserError: a dtype, budget or device that cannot be.
    """
    if dtype not in DTYPES:
        raise UserError(f"{owner}: dtype {dtype!r}; choose {' or '.join(DTYPES)}")
    if token_budget is not None and token_budget < 1:
        raise UserError(f"{owner}: token_budget is {token_budget}; wanted 1 or more")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"{owner}: device {str(device)!r} is not there; use cpu") from error
    default = CPU_TOKENS if where.type == "cpu" else GPU_TOKENS
    return Placement(where, DTYPES[dtype], token_budget or default)


def padded_rows(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of ids on the right.

    Returns ids and mask, int64 `[rows, longest]` each, on the CPU.
    """
    padded = torch.full((len(rows), max(map(len, rows))), pad_id)
    mask = torch.zeros_like(padded)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    return padded, mask


def length_sorted(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices into `lengths`, longest first, cut so that rows x longest <= `budget`.

    One that is longer than the budget is a batch of its own. Equal lengths keep their order.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        rows = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows


def in_batches(
    network: nn.Module, rows: Sequence[Sequence[int]], pad_id: int, placement: Placement
) -> Iterator[tuple[list[int], Any]]:
    """Yield the places of a batch of rows, and what the network makes of them.

    rows: of ids. Batches are padded, and within the placement's budget, the longest first.
    """
    for chosen in length_sorted([len(row) for row in rows], placement.token_budget):
        padded = padded_rows([rows[i] for i in chosen], pad_id)
        ids, mask = (part.to(placement.device) for part in padded)
        yield chosen, network(input_ids=ids, attention_mask=mask)


def load_tensors(source: Any, name: str, origin: str) -> Any:
    """Read what torch has saved in a path or stream, tensors and plain values alone.

    Raises UserError for anything else; name: of the file, origin: the file that it should be.
    """
    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        fault = f"is no checkpoint of tensors ({unreadable(error)})"
        raise UserError(f"{name} {fault}; wanted {origin}") from error


def faults_of(
    state: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]], extra: Iterable[str]
) -> str:
    """Say which tensors of `shapes` a state lacks or shapes otherwise; "" for none.

    extra: names of the state that should not be there.
    """
    shaped = [
        f"{key} {list(state[key].shape)} where {list(shape)} is wanted"
        for key, shape in shapes.items()
        if key in state and tuple(state[key].shape) != shape
    ]
    lacking = [key for key in shapes if key not in state]
    return told_faults({"lacks {}": lacking, "holds {} besides": extra, "has {}": shaped})


def told_faults(names: Mapping[str, Iterable[str]]) -> str:
    """Put the first names of each kind of fault into its words; "" without any."""
    lines = []
    for words, of in names.items():
        listed = list(of)
        more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
        lines += [words.format(", ".join(listed[:_NAMED]) + more)] if listed else []
    return "; ".join(lines)


# What every reading passes through, besides the folders of its reader and of the rules, whose words
# tell which hyphens part one.
_SHARED = (
    *("cached.py", "common/rtf.py", "common/nothing.py"),
    *("entities.py", "inference.py", "labels.py"),
)


def fingerprint(modules: Iterable[nn.Module], *settings: object, reader: str) -> str:
    """32 hex digits of the modules' tensors (values, dtype, name), `settings` and `sources`.

    The device does not enter. About a second per GB.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for file in sources(reader):
        digest.update(f"{file.name} ".encode() + file.read_bytes())
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()[:32]


def sources(reader: str) -> list[Path]:
    """The files of this package that a reading depends on; `reader`: `__file__` of a reader."""
    root = Path(__file__).parent
    folders = dict.fromkeys((Path(reader).parent, root / "rules"))
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    return [*files, *(root / name for name in _SHARED)]
