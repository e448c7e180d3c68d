"""Refusals of hidden states, head and targets that do not fit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rrgkern.linear_token_logps.sharded import gathered, refuse_sharded

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_head(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None,
    temperature: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor | None]:
    """weight and bias, gathered where they are sharded.

    Raises:
        TypeError: a dtype that is not served, dtypes that differ, a DTensor of rows.
        ValueError: shapes that do not fit, devices that differ, a temperature or softcap that is
            not positive.
    """
    refuse_sharded("hidden", hidden)
    refuse_sharded("targets", targets)
    if hidden.dtype not in FLOATS:
        raise TypeError(f"hidden is {hidden.dtype}, wanted float16, bfloat16, float32 or float64")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != hidden.dtype:
            raise TypeError(
                f"{name} is {tensor.dtype} and hidden is {hidden.dtype}, wanted one dtype: "
                f"pass {name}.to(hidden.dtype)"
            )
    if targets.dtype != torch.int64:
        raise TypeError(f"targets is {targets.dtype}, wanted int64")
    if weight.ndim != 2 or hidden.ndim < 1 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"hidden is {list(hidden.shape)} and weight {list(weight.shape)}, "
            "wanted [..., H] and [V, H]"
        )
    if hidden.shape[:-1] != targets.shape:
        raise ValueError(
            f"targets is {list(targets.shape)}, wanted {list(hidden.shape[:-1])}: one per hidden "
            "state"
        )
    if weight.shape[0] < 1:
        raise ValueError("weight has no rows, wanted a vocabulary of at least 1")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias is {list(bias.shape)}, wanted {[weight.shape[0]]}")
    for name, tensor in (("weight", weight), ("bias", bias), ("targets", targets)):
        if tensor is not None and tensor.device != hidden.device:
            raise ValueError(
                f"{name} is on {tensor.device} and hidden on {hidden.device}, wanted one device: "
                f"pass {name}.to(hidden.device)"
            )
    for name, value in (("temperature", temperature), ("softcap", softcap)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}, wanted a positive number")
    return gathered(weight), None if bias is None else gathered(bias)
