"""Pack groups into one `SharedPrefixBatch`, and attend in a decoding step behind their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from rrgkern.ops import flatten
from rrgkern.shared_prefix.batch import SharedPrefixBatch
from rrgkern.shared_prefix.op import shared_prefix_decode_op
from rrgkern.shared_prefix.reference import DecodeStep, decode_reference


def pack_shared_prefix(
    prefixes: Sequence[Tensor],
    suffixes: Sequence[Sequence[Tensor]],
    *,
    token_budget: int | None = None,
    pad_id: int = 0,
    multiple_of: int = 1,
) -> SharedPrefixBatch:
    """Pack groups into rows, each as `[prefix | suffix 1 | ... | suffix G]`.

    A prefix attends to itself causally; a suffix attends to its prefix and to itself, causally.
    Nothing else is visible, so the hidden states equal those of G separate rows.

    Args:
        prefixes: B tensors, int64 [P_b], P_b >= 1: the prompt of each group.
        suffixes: B lists of G_b >= 0 tensors, int64 [T], T >= 0: the members. Every token of a
            suffix is scored.
        token_budget: tokens per row. None puts one group in a row. Otherwise groups go, in order,
            to the first row that still has room (first fit); a group longer than the budget has
            a row of its own.
        pad_id: token id of the unused places at the end of a row.
        multiple_of: the row length is rounded up to a multiple of this (128 suits FlexAttention).

    Returns:
        The batch, on the device of the inputs. Sequences are ordered by group, then by member,
        whichever row their group lies in.

    Raises:
        TypeError: a prefix or suffix that is no tensor.
        ValueError: lists of different length, an empty prefix, a tensor that is not 1-D int64 or
            lies on another device, a budget or multiple below 1.
    """
    _check(prefixes, suffixes, token_budget, multiple_of)
    sizes = [
        len(prefix) + sum(len(s) for s in members)
        for prefix, members in zip(prefixes, suffixes, strict=True)
    ]
    rows = _place(sizes, token_budget)
    length = max((sum(sizes[b] for b in row) for row in rows), default=0)
    length = -(-length // multiple_of) * multiple_of
    device = prefixes[0].device if prefixes else torch.device("cpu")

    # One entry per segment (a prefix or a suffix) in the order of the flat rows; everything
    # token-wise follows from these by repeat_interleave.
    parts: list[Tensor] = []
    starts: list[int] = []
    groups: list[int] = []
    members: list[int] = []
    row_of_group = [0] * len(sizes)
    start_of_group = [0] * len(sizes)
    segment_of: dict[tuple[int, int], int] = {}
    for r, row in enumerate(rows):
        at = r * length
        for b in row:
            row_of_group[b], start_of_group[b] = r, at
            for m, part in enumerate((prefixes[b], *suffixes[b]), start=-1):
                segment_of[b, m] = len(parts)
                parts.append(part)
                starts.append(at)
                groups.append(b)
                members.append(m)
                at += len(part)

    def long(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    lengths = [len(part) for part in parts]
    segment_lengths = long(lengths)
    total = sum(lengths)
    segment = torch.repeat_interleave(segment_lengths, output_size=total)
    before = torch.cumsum(segment_lengths, 0) - segment_lengths
    depth = torch.arange(total, device=device) - before[segment]
    place = long(starts)[segment] + depth

    def rows_of(values: Tensor, fill: int) -> Tensor:
        flat = torch.full((len(rows) * length,), fill, dtype=torch.int64, device=device)
        return flat.index_copy_(0, place, values).view(len(rows), length)

    order = [(b, m) for b, group in enumerate(suffixes) for m in range(len(group))]
    sequence_segment = [segment_of[key] for key in order]
    sequence_lengths = long([lengths[i] for i in sequence_segment])
    offsets = torch.zeros(len(order) + 1, dtype=torch.int64, device=device)
    torch.cumsum(sequence_lengths, 0, out=offsets[1:])
    count = sum(lengths[i] for i in sequence_segment)
    sequence = torch.repeat_interleave(sequence_lengths, output_size=count)
    within = torch.arange(count, device=device) - offsets[:-1][sequence]
    first = long([starts[i] for i in sequence_segment])
    last_of_prefix = long([start_of_group[b] + len(prefixes[b]) - 1 for b, _ in order])
    gather = torch.where(within == 0, last_of_prefix[sequence], first[sequence] + within - 1)

    flat_ids = torch.cat(list(parts)) if parts else long([])
    scored = [suffixes[b][m] for b, m in order]
    return SharedPrefixBatch(
        input_ids=rows_of(flat_ids, pad_id),
        group=rows_of(long(groups)[segment], -1),
        member=rows_of(long(members)[segment], -1),
        depth=rows_of(depth, 0),
        targets=torch.cat(scored) if scored else long([]),
        gather=gather,
        offsets=offsets,
        group_of_sequence=long([b for b, _ in order]),
        group_offsets=long([0, *accumulate([len(group) for group in suffixes])]),
        prefix_lengths=long([len(prefix) for prefix in prefixes]),
        row_of_group=long(row_of_group),
        start_of_group=long(start_of_group),
        start_of_sequence=first,
    )


def shared_prefix_decode(step: DecodeStep) -> Tensor:
    """Attend from the new token of each row to its prompt and its own places.

    One kernel on a GPU: it writes the new keys and values, reads each prompt once for the rows of
    its group (see README.md), then each row's own places, and merges both in registers. It reads
    16-bit numbers as they are and adds up in fp32. The host reads nothing, so that a CUDA graph can
    hold it. On a CPU it is the reference.

    Args:
        step: see its fields.

    Returns:
        [N, heads, E] in the query's dtype.

    Raises:
        TypeError: what is no tensor.
        ValueError: shapes that do not fit together.
    """
    step.check()
    return decode_unchecked(step)


def decode_unchecked(step: DecodeStep) -> Tensor:
    """Attend as `shared_prefix_decode` does, in a step that is known to fit together."""
    if step.query.is_cpu:  # inductor fuses what it sees
        return decode_reference(step)
    out: Tensor = shared_prefix_decode_op(*flatten(step))
    return out


def _place(sizes: Sequence[int], budget: int | None) -> list[list[int]]:
    if budget is None:
        return [[b] for b in range(len(sizes))]
    rows: list[list[int]] = []
    room: list[int] = []
    for b, size in enumerate(sizes):
        for r, left in enumerate(room):
            if size <= left:
                rows[r].append(b)
                room[r] -= size
                break
        else:
            rows.append([b])
            room.append(budget - size)
    return rows


def _check(
    prefixes: Sequence[Tensor],
    suffixes: Sequence[Sequence[Tensor]],
    token_budget: int | None,
    multiple_of: int,
) -> None:
    if len(prefixes) != len(suffixes):
        raise ValueError(
            f"{len(prefixes)} prefixes and {len(suffixes)} lists of suffixes: give one list per "
            "prefix (an empty one where a group has no member)"
        )
    if token_budget is not None and token_budget < 1:
        raise ValueError(f"token_budget is {token_budget}: give at least 1, or None")
    if multiple_of < 1:
        raise ValueError(f"multiple_of is {multiple_of}: give at least 1")
    for b, (prefix, group) in enumerate(zip(prefixes, suffixes, strict=True)):
        for name, part in (("prefix", prefix), *((f"suffix {m}", s) for m, s in enumerate(group))):
            if not isinstance(part, Tensor):
                raise TypeError(
                    f"group {b}: the {name} is a {type(part).__name__}: give token ids as "
                    "torch.tensor(ids), int64 of shape [length]"
                )
            if part.device != prefixes[0].device:
                raise ValueError(
                    f"group {b}: the {name} is on {part.device} and the first prefix on "
                    f"{prefixes[0].device}: move them to one device"
                )
            if part.dim() != 1 or part.dtype != torch.int64:
                raise ValueError(
                    f"group {b}: the {name} is {part.dtype} of shape {tuple(part.shape)}: "
                    "give token ids as int64 of shape [length]"
                )
        if len(prefix) == 0:
            raise ValueError(
                f"group {b} has an empty prefix: nothing would predict the first token of its "
                "members; give at least one token"
            )
