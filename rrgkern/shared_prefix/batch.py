"""`SharedPrefixBatch`: packed rows and what a model and a loss need of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def moved(record: T, device: torch.device | str) -> T:
    """Move every tensor of a dataclass to `device`.

    Nobody waits for what goes to a GPU; on a CPU it would be read before it has arrived.
    """
    ahead = torch.device(device).type != "cpu"
    held: dict[str, Any] = vars(record)
    return type(record)(**{k: t.to(device, non_blocking=ahead) for k, t in held.items()})


@dataclass(frozen=True)
class SharedPrefixBatch:
    """B groups with S members in R rows of L places, N scored; int64.

    input_ids [R, L]; group [R, L], -1 on padding; member [R, L], -1 on a prefix and on padding;
    depth [R, L], the index of a token within its prefix or suffix, 0 on padding.

    targets [N]: the tokens scored, by group, then member, then place.
    gather [N]: the flat index into R * L of the hidden state that predicts each target; the
        first token of a member is predicted by the last token of its prefix.
    offsets [S + 1]: where each sequence begins in `targets`.
    group_of_sequence [S]; group_offsets [B + 1]: the sequences of each group.
    prefix_lengths [B]; row_of_group [B]; start_of_group [B]: the flat index of the first token
        of each group, from which the prefix lies contiguously (where to put vision tokens).
    start_of_sequence [S]: the flat index of the first token of each member, likewise.
    """

    input_ids: Tensor
    group: Tensor
    member: Tensor
    depth: Tensor
    targets: Tensor
    gather: Tensor
    offsets: Tensor
    group_of_sequence: Tensor
    group_offsets: Tensor
    prefix_lengths: Tensor
    row_of_group: Tensor
    start_of_group: Tensor
    start_of_sequence: Tensor

    def to(self, device: torch.device | str) -> SharedPrefixBatch:
        """Move every tensor to `device`."""
        return moved(self, device)

    def position_ids(self, prefix_positions: Sequence[Tensor]) -> Tensor:
        """Lay positions out on the packed rows, int64 [A, R, L]; 0 on padding.

        Args:
            prefix_positions: B tensors, int64 [A, P_b]: the positions of each prefix on A axes
                (1 for text, 3 for Qwen2.5-VL's temporal, height and width axes).

        Every suffix restarts at the largest position of its prefix plus 1, on all axes, as if it
        were the only one.
        """
        if len(prefix_positions) != len(self.prefix_lengths):
            raise ValueError(
                f"{len(prefix_positions)} position tensors for {len(self.prefix_lengths)} "
                "prefixes: give one per prefix"
            )
        for b, (positions, length) in enumerate(
            zip(prefix_positions, self.prefix_lengths.tolist(), strict=True)
        ):
            if positions.dim() != 2 or positions.shape[1] != length:
                raise ValueError(
                    f"group {b}: positions of shape {tuple(positions.shape)} for a prefix of "
                    f"{length} tokens: give [axes, {length}]"
                )
        rows, length = self.input_ids.shape
        device = self.input_ids.device
        if not prefix_positions:
            return torch.zeros(1, rows, length, dtype=torch.int64, device=device)
        flat = torch.cat(list(prefix_positions), 1).to(device)
        begin = torch.cumsum(self.prefix_lengths, 0) - self.prefix_lengths
        restart = torch.stack([p.max() + 1 for p in prefix_positions]).to(device)

        group = self.group.clamp(min=0)
        in_prefix = (self.member < 0) & (self.group >= 0)
        place = torch.where(in_prefix, begin[group] + self.depth, 0)
        in_suffix = restart[group] + self.depth
        positions = torch.where(in_prefix, flat[:, place], in_suffix)
        return positions.masked_fill(self.group < 0, 0)

    def visible(self) -> Tensor:
        """Mark who attends to whom, bool [R, L, L] (query, key).

        Padding sees the padding before it and itself, so no row of a softmax is empty.
        """
        # One int32 per segment: two comparisons of half the width instead of three.
        width = self.member.max().add(2) if self.member.numel() else 1
        own = (self.group * width + self.member + 1).to(torch.int32)
        prefix = (self.group * width).to(torch.int32).masked_fill(self.group < 0, -1)
        own = own.masked_fill(self.group < 0, -1)
        key = own[:, None, :]
        return (own[:, :, None] == key).logical_or_(prefix[:, :, None] == key).tril_()

    def attention_mask(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Build the additive mask [R, 1, L, L]: 0 where visible, else `dtype`'s minimum.

        Finite, not -inf: a kernel that walks the keys in blocks may meet a block with nothing
        visible before the first visible key, and -inf minus -inf is NaN.
        """
        hidden = ~self.visible()[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)

    def mask_mod(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Return the rule for FlexAttention's `create_block_mask(mod, R, None, L, L)`."""
        group, member = self.group, self.member

        def mod(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same_group = group[row, query] == group[row, key]
            mine = (member[row, key] < 0) | (member[row, query] == member[row, key])
            return same_group & mine & (key <= query)

        return mod
