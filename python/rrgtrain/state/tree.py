"""Nested state (dicts, lists, tuples) with its tensors taken out, and put together again."""

from __future__ import annotations

from typing import Any

import torch

# A tensor's place in the skeleton: a dict with this key alone, holding the tensor's name.
PLACE = "__tensor__"


def take_out(state: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """(`state` with every tensor replaced by its name, the tensors by that name).

    Raises TypeError for a leaf that is neither a tensor nor plain data (None, bool, int, float,
    str, bytes): it could not be read back without running code from the file.
    """
    tensors: dict[str, torch.Tensor] = {}

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, torch.Tensor):
            # numbered: {"a.b": x} and {"a": {"b": x}} are two paths of one spelling
            name = f"{len(tensors)}:{path}"
            tensors[name] = node
            return {PLACE: name}
        if isinstance(node, dict):
            return {key: walk(value, f"{path}.{key}") for key, value in node.items()}
        if isinstance(node, list | tuple):
            parts = [walk(value, f"{path}.{i}") for i, value in enumerate(node)]
            return tuple(parts) if isinstance(node, tuple) else parts
        if isinstance(node, float):
            return float(node)  # a NumPy float64 is one, and would be pickled as what it is
        if isinstance(node, bool | int | str | bytes):
            return node
        if node is None:
            return None
        raise TypeError(
            f"the state's {path.removeprefix('.')} is a {type(node).__name__}; a checkpoint holds "
            "tensors, numbers, text, and dicts, lists and tuples of them"
        )

    skeleton = walk(state, "")
    return skeleton, tensors


def put_back(skeleton: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The inverse of `take_out`."""
    if isinstance(skeleton, dict):
        if set(skeleton) == {PLACE}:
            return tensors[skeleton[PLACE]]
        return {key: put_back(value, tensors) for key, value in skeleton.items()}
    if isinstance(skeleton, list):
        return [put_back(value, tensors) for value in skeleton]
    if isinstance(skeleton, tuple):
        return tuple(put_back(value, tensors) for value in skeleton)
    return skeleton
