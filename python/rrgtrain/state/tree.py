"""Take the large tensors out of nested state (dicts, lists, tuples), and put them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rrgpolicy.ranks import ranks

# Stands for a tensor in the skeleton: a dict with this key, which holds the tensor's name.
PLACE = "__tensor__"
# A dict with this key alone holds the skeletons of all ranks' own values.
RANKS = "__ranks__"
# Plain tensors of fewer bytes stay in the skeleton: DCP takes a millisecond for each of its own.
SMALL = 1 << 16


@dataclass(frozen=True)
class PerRank:
    """Wrap a value that each rank has its own of.

    It comes back as a list, None for other ranks'.

    of: how many different ones there are, where later ranks hold copies (rank r that of rank
    r % of); None is one a rank.
    """

    value: Any
    of: int | None = None


def take_out(state: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Split `state` into its skeleton and this rank's share of the large tensors, by name.

    All ranks call it at once. Rank 0's skeleton counts, and its plain tensors; of a sharded tensor
    every rank has its part. Raises TypeError for a leaf that is neither a tensor nor plain data
    (None, bool, int, float, str, bytes): it could not be read back without running code.
    """
    tensors: dict[str, torch.Tensor] = {}

    def walk(node: Any, path: tuple[Any, ...], own: bool) -> Any:
        if isinstance(node, torch.Tensor):
            sharded = hasattr(node, "device_mesh")
            if not sharded and node.numel() * node.element_size() < SMALL:
                return node.detach().cpu().clone()  # of a view, no more than the view
            name = repr(path)
            if sharded or own:
                tensors[name] = node.detach()
            return {PLACE: name, "sharded": sharded}
        if isinstance(node, PerRank):
            count = node.of or ranks.size()
            value = node.value if ranks.rank() < count else None
            return {RANKS: ranks.gather(walk(value, (*path, ranks.rank()), True))[:count]}
        if isinstance(node, dict):
            return {key: walk(value, (*path, key), own) for key, value in node.items()}
        if isinstance(node, list | tuple):
            parts = [walk(value, (*path, i), own) for i, value in enumerate(node)]
            return tuple(parts) if isinstance(node, tuple) else parts
        if isinstance(node, float):
            return float(node)  # a NumPy float64 is one, and would be pickled as what it is
        if node is None or isinstance(node, bool | int | str | bytes):
            return node
        raise TypeError(
            f"the state's {'.'.join(map(str, path))} is a {type(node).__name__}; a checkpoint "
            "holds tensors, numbers, text, and dicts, lists and tuples of them"
        )

    return walk(state, (), ranks.is_main()), tensors


def put_back(skeleton: Any, tensor: Callable[[str, bool], torch.Tensor]) -> Any:
    """The inverse of `take_out`; `tensor(name, sharded)` gives the tensors that it took out."""
    if isinstance(skeleton, dict):
        if PLACE in skeleton:
            return tensor(skeleton[PLACE], skeleton.get("sharded", False))
        if set(skeleton) == {RANKS}:
            own = ranks.rank() % len(skeleton[RANKS])
            return [
                put_back(part, tensor) if rank == own else None
                for rank, part in enumerate(skeleton[RANKS])
            ]
        return {key: put_back(value, tensor) for key, value in skeleton.items()}
    if isinstance(skeleton, list | tuple):
        parts = [put_back(value, tensor) for value in skeleton]
        return tuple(parts) if isinstance(skeleton, tuple) else parts
    return skeleton
