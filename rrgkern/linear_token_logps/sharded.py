"""Heads that are spread over ranks (FSDP2's DTensor): gathered, their gradients sent back."""

from __future__ import annotations

import sys

from torch import Tensor


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor on every rank; a plain tensor as it is.

    Its gradient is averaged over the ranks on its way back to the shards, as FSDP2 does with the
    gradients that pass through its hooks.
    """
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Partial

    ranks = tensor.device_mesh.ndim  # type: ignore[attr-defined]
    whole: Tensor = tensor.full_tensor(  # type: ignore[attr-defined]
        grad_placements=[Partial("avg")] * ranks
    )
    return whole


def is_sharded(tensor: Tensor | None) -> bool:
    """Whether it is a DTensor; does not import what is not imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def refuse_sharded(name: str, tensor: Tensor | None) -> None:
    """Raise TypeError for a DTensor where a rank's own rows are wanted."""
    if is_sharded(tensor):
        raise TypeError(
            f"{name} is a DTensor, wanted this rank's own rows: pass {name}.to_local() or "
            f"{name}.full_tensor()"
        )
