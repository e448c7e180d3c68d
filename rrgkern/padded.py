"""Lay padded tokens [B, T] out as B sequences of T, copying no row.

Tensors of one number a token are flattened. Rows of hidden states are never gathered here: a slice
such as `hidden[:, :-1]` is viewed as all rows from its first to its last, and what lies between two
sequences is masked.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern.checks import functorch_level

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Tokens(NamedTuple):
    """Hold the shape of a call's tokens, and the rows between two sequences' beginnings."""

    anchor: str  # the argument that has them
    shape: torch.Size
    pitch: int = 0  # more than T where rows lie between two sequences; [B, T] only

    @property
    def total(self) -> int:
        """N, with the rows between two sequences."""
        if not self.pitch:
            return math.prod(self.shape)  # Size.numel() makes a constant of a dynamic axis
        return (self.shape[0] - 1) * self.pitch + self.shape[1]

    def flat(self, name: str, values: Tensor) -> Tensor:
        """Flatten the argument `name`, of the tokens' shape or [N], to [N].

        Raises:
            ValueError: another shape.
        """
        if values.shape != self.shape:
            if values.shape != (math.prod(self.shape),):
                raise ValueError(
                    f"{name} has shape {tuple(values.shape)} and {self.anchor} "
                    f"{tuple(self.shape)}; wanted the same"
                )
            values = values.view(self.shape)
        if self.pitch:
            values = F.pad(values, (0, self.pitch - self.shape[1]))
        return values.reshape(-1)[: self.total]

    def unflat(self, values: Tensor) -> Tensor:
        """Bring values [N] back to the tokens' shape."""
        if not self.pitch:
            return values.view(self.shape)
        spread = F.pad(values, (0, self.shape[0] * self.pitch - self.total))
        return spread.view(-1, self.pitch)[:, : self.shape[1]].contiguous()

    def offsets(self, offsets: Tensor | None, device: torch.device) -> Tensor:
        """Find where sequences begin: [B+1] of padded tokens, else as they are passed.

        Raises:
            TypeError: neither offsets nor [B, T].
        """
        if offsets is None:
            if len(self.shape) != 2:
                raise TypeError(
                    f"offsets is None; wanted a torch.Tensor [S+1], for {self.anchor} is no padded "
                    "batch [B, T]"
                )
            batch, length = self.shape
            begins = torch.arange(batch + 1, device=device) * (self.pitch or length)
            return begins.clamp(max=self.total) if self.pitch else begins
        return offsets

    def of_sequences(self, name: str, values: Tensor) -> Tensor:
        """Shape a padded batch's values [B, 1] per sequence or [1, N] per token.

        Raises:
            ValueError: neither [B], [B, 1] nor [B, T].
        """
        batch, length = self.shape
        if values.shape in ((batch,), (batch, 1)):
            return values.reshape(batch, 1)
        if values.shape == self.shape:
            return self.flat(name, values)[None]
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and {self.anchor} {tuple(self.shape)}; "
            f"wanted [B] = ({batch},) or [B, 1], one per sequence, or [B, T] = ({batch}, {length})"
        )


def as_flags(name: str, flags: Tensor) -> Tensor:
    """Return bool flags as they are, and integers as "is not 0".

    Raises:
        TypeError: another dtype.
    """
    if flags.dtype == torch.bool:
        return flags
    if flags.dtype not in INTEGERS:
        raise TypeError(f"{name} is {flags.dtype}; wanted torch.bool or an integer: {name}.bool()")
    return flags != 0


def rows_to_keep(mask: Tensor | None, tokens: Tokens, device: torch.device) -> Tensor | None:
    """Check a mask of the tokens' shape, and flatten it to [N] bool.

    Raises:
        TypeError: neither bool nor integers.
        ValueError: another shape or device.
    """
    if mask is None:
        return None
    if mask.device != device:
        raise ValueError(
            f"mask is on {mask.device} and {tokens.anchor} on {device}; move them to one device"
        )
    return tokens.flat("mask", as_flags("mask", mask))


def hidden_rows(hidden: Tensor, masked: bool) -> tuple[Tensor, Tokens]:
    """View hidden [..., H] as rows [N, H], and say where tokens lie.

    Rows between two sequences are among them where there is a mask to leave them out; without one,
    under torch.compile and torch.func, and in other layouts that no view reaches, rows are copied.

    Raises:
        ValueError: hidden [..., 0], whose rows nothing can count.
    """
    if hidden.shape[-1] == 0:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}; wanted a feature in each row")
    tokens = Tokens("hidden", hidden.shape[:-1])
    eager = not torch.compiler.is_compiling() and functorch_level() is None
    if hidden.ndim == 3 and masked and eager:
        (batch, length, _), (far, near, _) = hidden.shape, hidden.stride()
        if batch > 1 and length > 1 and near > 0 and far % near == 0 and far // near > length:
            tokens = tokens._replace(pitch=far // near)
            return _Rows.apply(hidden, tokens), tokens
    return hidden.reshape(-1, hidden.shape[-1]), tokens


class _Rows(torch.autograd.Function):
    """View [B, T, H] as the rows from its first to its last, and their gradient as [B, T, H]."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, tokens: Tokens) -> Tensor:
        ctx.tokens = tokens
        return hidden.as_strided((tokens.total, hidden.shape[2]), hidden.stride()[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        row, column = gradient.stride()
        shape = (*ctx.tokens.shape, gradient.shape[1])
        return gradient.as_strided(shape, (ctx.tokens.pitch * row, row, column)), None
