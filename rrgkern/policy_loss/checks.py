"""What the arguments of a policy loss must look like, whichever tensor stands for its tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rrgkern.checks import check_offsets
from rrgkern.policy_loss.spec import PolicyLoss


def check_arguments(
    anchor: str,
    tokens: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    *,
    scale: Tensor,
    per_token: Mapping[str, Tensor | None],
    on_policy: Tensor | None,
    mask: Tensor | None,
    spec: PolicyLoss,
) -> None:
    """Raise one line naming what was seen and wanted.

    Args:
        anchor, tokens: the argument that has one element per token, and its name: N and the device
            are taken from it.
        per_token: other [N] tensors by name, "ref" among them.
    """
    _check_offsets(anchor, tokens, offsets)
    n_tokens, n_sequences = tokens.numel(), offsets.numel() - 1
    for name, values in per_token.items():
        _check_values(name, values, anchor, tokens, (n_tokens,), "[N]")
    _check_flags("on_policy", on_policy, anchor, tokens, n_sequences, "[S], one per sequence")
    _check_flags("mask", mask, anchor, tokens, n_tokens, "[N], one per token")
    for name, values in {"advantages": advantages, "scale": scale}.items():
        _check_values(name, values, anchor, tokens, (n_sequences, n_tokens), "[S] or [N]")
    if spec.beta and per_token["ref"] is None:
        raise ValueError(f"beta is {spec.beta} and ref is None; pass ref [N] or set beta to 0")


def _check_offsets(anchor: str, tokens: Tensor, offsets: Tensor) -> None:
    if offsets.ndim != 1 or offsets.numel() == 0:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}; wanted [S+1], at least [0]")
    if offsets.dtype != torch.int64:
        raise TypeError(f"offsets is {offsets.dtype}; wanted torch.int64")
    if offsets.numel() == 1 and tokens.numel():
        raise ValueError(
            f"offsets has shape (1,), so no sequence, and {anchor} {tuple(tokens.shape)}; "
            "wanted [S+1] that ends at N"
        )
    _check_device("offsets", offsets, anchor, tokens)
    check_offsets("offsets", offsets, tokens.numel(), "tokens")


def _check_values(
    name: str,
    values: Tensor | None,
    anchor: str,
    tokens: Tensor,
    lengths: tuple[int, ...],
    wanted: str,
) -> None:
    if values is None:
        return
    if values.ndim != 1 or values.numel() not in lengths:
        accepted = " or ".join(f"({length},)" for length in lengths)
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and {anchor} {tuple(tokens.shape)}; "
            f"wanted {wanted} = {accepted}"
        )
    if not values.is_floating_point():
        raise TypeError(f"{name} is {values.dtype}; wanted floating point: pass {name}.float()")
    _check_device(name, values, anchor, tokens)


def _check_flags(
    name: str, flags: Tensor | None, anchor: str, tokens: Tensor, length: int, wanted: str
) -> None:
    if flags is None:
        return
    if flags.shape != (length,):
        raise ValueError(
            f"{name} has shape {tuple(flags.shape)} and {anchor} {tuple(tokens.shape)}; "
            f"wanted {wanted} = ({length},)"
        )
    if flags.dtype != torch.bool:
        raise TypeError(f"{name} is {flags.dtype}; wanted torch.bool: pass {name}.bool()")
    _check_device(name, flags, anchor, tokens)


def _check_device(name: str, tensor: Tensor, anchor: str, tokens: Tensor) -> None:
    if tensor.device != tokens.device:
        raise ValueError(
            f"{name} is on {tensor.device} and {anchor} on {tokens.device}; move them to one device"
        )


def constant(values: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What the ops take for an optional tensor without gradient: that dtype, contiguous."""
    return None if values is None else values.detach().to(dtype).contiguous()
