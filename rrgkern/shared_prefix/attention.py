"""Attend over packed groups by visible blocks only, from SDPA; take rows by their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern.checks import check_derivatives, check_tensors
from rrgkern.shared_prefix.batch import SharedPrefixBatch, moved

# The gradient is widened this many elements at a time: 128 MiB of fp32.
WIDENED = 1 << 25


@dataclass(frozen=True)
class AttentionLayout:
    """Places of the blocks of a batch.

    B prefixes of at most P tokens, S members of at most T.
    prefix int64 [B, P], suffix int64 [S, T], keys int64 [S, P + T]: flat places in the rows,
    padded with places that `visible` hides or that no `source` names.
    visible bool [S, 1, T, P + T]: which keys a member's tokens see.
    source int64 [R * L]: for each place of the rows, its index in the prefixes' outputs [B * P]
    followed by the members' [S * T]; 0 on padding.
    """

    prefix: Tensor
    suffix: Tensor
    keys: Tensor
    visible: Tensor
    source: Tensor

    def to(self, device: torch.device | str) -> AttentionLayout:
        """Move every tensor to `device`."""
        return moved(self, device)


def attention_layout(batch: SharedPrefixBatch) -> AttentionLayout:
    """Find the blocks of `batch` once, for every layer.

    Cheapest while the batch is on the CPU: the block sizes are read back.
    """
    lengths = batch.offsets.diff()
    group = batch.group_of_sequence
    device = group.device
    longest_prefix = int(batch.prefix_lengths.max()) if len(batch.prefix_lengths) else 0
    longest = int(lengths.max()) if len(lengths) else 0
    in_prefix = torch.arange(longest_prefix, device=device) < batch.prefix_lengths[:, None]
    in_suffix = torch.arange(longest, device=device) < lengths[:, None]
    prefix = _places(batch.start_of_group, in_prefix)
    # A member of no tokens at the end of the last row would begin behind it.
    suffix = _places(batch.start_of_sequence, in_suffix).clamp(max=max(batch.group.numel() - 1, 0))

    causal = in_suffix.new_ones(longest, longest).tril()
    visible = torch.cat(
        [in_prefix[group][:, None].expand(-1, longest, -1), causal.expand(len(lengths), -1, -1)], 2
    )
    source = torch.zeros(batch.group.numel(), dtype=torch.int64, device=device)
    source[prefix[in_prefix]] = in_prefix.flatten().nonzero().squeeze(1)
    source[suffix[in_suffix]] = in_suffix.flatten().nonzero().squeeze(1) + in_prefix.numel()
    return AttentionLayout(
        prefix=prefix,
        suffix=suffix,
        keys=torch.cat([prefix[group], suffix], 1),
        visible=visible[:, None],
        source=source,
    )


def shared_prefix_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: AttentionLayout,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attend as SDPA does with `batch.attention_mask()`, without computing what the mask hides.

    Two calls of scaled_dot_product_attention: the prefixes, causal; the members, each against its
    prefix and itself. With P prefix and T member tokens a group costs P² / 2 + G T (P + T) scores
    instead of (P + G T)².

    Args:
        query: [R, heads, L, D]; key, value: [R, key heads, L, D], where the number of key heads
            divides that of heads.
        layout: of the batch, on the same device.
        scale: of the scores; 1 / sqrt(D) by default.

    Returns:
        [R, heads, L, D]. Differentiable in query, key and value. On padding the values are finite
        and mean nothing; gradients that flow into them must be zero, as they are when only the
        places in `batch.gather` are read.

    Raises:
        ValueError: shapes that do not fit the layout.
    """
    check_tensors(query=query, key=key, value=value)
    rows, heads, length, width = query.shape
    if key.shape != value.shape or key.shape[::2] != query.shape[::2] or key.shape[3] != width:
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}: give "
            "[rows, heads, length, width] alike but for the number of key heads"
        )
    if rows * length != layout.source.numel() or heads % key.shape[1]:
        raise ValueError(
            f"query {tuple(query.shape)} with {key.shape[1]} key heads and a layout of "
            f"{layout.source.numel()} places: give the layout of the same batch, and heads that "
            "the key heads divide"
        )
    queries, keys, values = (t.transpose(1, 2).flatten(0, 1) for t in (query, key, value))
    grouped = heads != key.shape[1]
    of_prefixes = F.scaled_dot_product_attention(
        _blocks(queries, layout.prefix),
        _blocks(keys, layout.prefix),
        _blocks(values, layout.prefix),
        is_causal=True,
        scale=scale,
        enable_gqa=grouped,
    )
    of_members = F.scaled_dot_product_attention(
        _blocks(queries, layout.suffix),
        # Every member takes the keys of its prefix, whose gradients add up.
        _blocks(keys, layout.keys, summed=True),
        _blocks(values, layout.keys, summed=True),
        attn_mask=layout.visible,
        scale=scale,
        enable_gqa=grouped,
    )
    blocks = [o.transpose(1, 2).reshape(-1, heads, width) for o in (of_prefixes, of_members)]
    out = torch.cat(blocks).index_select(0, layout.source)
    return out.view(rows, length, heads, width).transpose(1, 2)


def _places(starts: Tensor, inside: Tensor) -> Tensor:
    """List consecutive places from each start; outside a block, its first place again."""
    steps = torch.arange(inside.shape[1], device=starts.device)
    return starts[:, None] + torch.where(inside, steps, 0)


def _blocks(flat: Tensor, places: Tensor, *, summed: bool = False) -> Tensor:
    """Take [R * L, heads, D] at places [n, m] as [n, heads, m, D]; gradients `summed` in fp32."""
    at = places.flatten()  # without sums only padding, whose gradient is 0, is taken twice
    taken = gather_rows(flat, at) if summed else flat.index_select(0, at)
    return taken.view(*places.shape, *flat.shape[1:]).transpose(1, 2)


def gather_rows(values: Tensor, places: Tensor) -> Tensor:
    """Take `values[places]`, with the gradients of equal places summed.

    That of `index_select` adds them in the dtype of `values`, and on a GPU in an order that differs
    from run to run. Here they are added in order, in fp32 (fp64 for fp64), and rounded once.
    Derivatives of every order by autograd are served; forward mode and torch.func raise
    NotImplementedError.

    Args:
        values: [P, ...], differentiable.
        places: [N] int64, each in [0, P), in any order.

    Returns:
        [N, ...] in the dtype of `values`.
    """
    check_tensors(values=values, places=places)
    check_derivatives(values=values)
    rows: Tensor = _GatherRows.apply(values, places)
    return rows


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(values)
        return values.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _SumRows.apply(gradient, *ctx.saved_tensors, ctx.rows), None


class _SumRows(torch.autograd.Function):
    """The transpose of `_GatherRows`, and each the other's derivative."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(places)
        total = values.new_zeros(rows, values.shape[1:].numel())
        shape = rows, *values.shape[1:]
        if not values.numel():
            return total.view(shape)
        named, order = places.sort(stable=True)
        ends = torch.searchsorted(named, torch.arange(rows + 1, device=places.device))
        wide = torch.float64 if values.dtype == torch.float64 else torch.float32
        flat = values.reshape(len(places), -1)
        for columns in torch.arange(flat.shape[1]).split(max(1, WIDENED // len(places))):
            block = slice(int(columns[0]), int(columns[-1]) + 1)
            part = flat[:, block].index_select(0, order).to(wide)
            total[:, block] = torch.segment_reduce(
                part, "sum", lengths=ends.diff(), initial=0, unsafe=True
            )
        return total.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _GatherRows.apply(gradient, *ctx.saved_tensors), None, None
