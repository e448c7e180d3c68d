"""The packing, checked place by place against its definition."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bench.unshared import unshared_rows
from rrgkern.shared_prefix import (
    AttentionLayout,
    SharedPrefixBatch,
    attention,
    attention_layout,
    gather_rows,
    pack_shared_prefix,
    shared_prefix_attention,
)
from tests.operators import Operators
from tests.rrgkern.device import DEVICE
from tests.rrgkern.shared_prefix.test_attention import inputs, pack

Groups = tuple[list[torch.Tensor], list[list[torch.Tensor]]]


def make(sizes: list[tuple[int, list[int]]]) -> Groups:
    """Groups whose tokens are all different, so a misplaced one shows."""
    counter = iter(range(1, 100_000))
    tokens = [
        (
            torch.tensor([next(counter) for _ in range(p)]),
            [torch.tensor([next(counter) for _ in range(t)], dtype=torch.int64) for t in members],
        )
        for p, members in sizes
    ]
    return [p for p, _ in tokens], [s for _, s in tokens]


def may_see(batch: SharedPrefixBatch, r: int, q: int, k: int) -> bool:
    """The rule in words: the same group, not later, and a prefix or one's own member."""
    group, member = batch.group[r].tolist(), batch.member[r].tolist()
    return group[q] == group[k] and k <= q and member[k] in (-1, member[q])


GROUPS = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=4)), min_size=1, max_size=5
)
BUDGET = st.one_of(st.none(), st.integers(1, 40))


@given(GROUPS, BUDGET, st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_every_token_is_placed_once_and_scored_once(
    sizes: list[tuple[int, list[int]]], budget: int | None, multiple: int
) -> None:
    prefixes, suffixes = make(sizes)
    batch = pack_shared_prefix(
        prefixes, suffixes, token_budget=budget, pad_id=-7, multiple_of=multiple
    )
    flat = batch.input_ids.flatten()
    assert batch.input_ids.shape[1] % multiple == 0
    placed = flat[batch.group.flatten() >= 0].sort().values
    given_tokens = torch.cat([*prefixes, *(s for group in suffixes for s in group)])
    assert torch.equal(placed, given_tokens.sort().values)
    assert (flat[batch.group.flatten() < 0] == -7).all()

    for b, prefix in enumerate(prefixes):
        start = int(batch.start_of_group[b])
        assert torch.equal(flat[start : start + len(prefix)], prefix)
        assert start // batch.input_ids.shape[1] == int(batch.row_of_group[b])
        lo, hi = batch.group_offsets[b : b + 2].tolist()
        assert (batch.group_of_sequence[lo:hi] == b).all()
        assert hi - lo == len(suffixes[b])
        for m, suffix in enumerate(suffixes[b]):
            begin, end = batch.offsets[lo + m : lo + m + 2].tolist()
            assert torch.equal(batch.targets[begin:end], suffix)
            # What predicts a token is what stands before it in [prefix | suffix].
            before = torch.cat([prefix[-1:], suffix[:-1]]) if len(suffix) else suffix
            assert torch.equal(flat[batch.gather[begin:end]], before)
            seen_by = batch.member.flatten()[batch.gather[begin:end]].tolist()
            assert seen_by == ([-1] + [m] * (len(suffix) - 1) if len(suffix) else [])


@given(GROUPS, BUDGET)
@settings(max_examples=60, deadline=None)
def test_masks_follow_the_rule(sizes: list[tuple[int, list[int]]], budget: int | None) -> None:
    batch = pack_shared_prefix(*make(sizes), token_budget=budget, multiple_of=3)
    rows, length = batch.input_ids.shape
    wanted = torch.tensor(
        [
            [[may_see(batch, r, q, k) for k in range(length)] for q in range(length)]
            for r in range(rows)
        ]
    )
    assert torch.equal(batch.visible(), wanted)
    mask = batch.attention_mask(torch.bfloat16)
    assert mask.shape == (rows, 1, length, length)
    assert mask.dtype == torch.bfloat16
    assert torch.equal(mask[:, 0] == 0, wanted)
    assert torch.isfinite(mask).all()
    assert wanted.any(-1).all(), "an empty softmax row would be NaN"
    r, q, k = torch.meshgrid(
        torch.arange(rows), torch.arange(length), torch.arange(length), indexing="ij"
    )
    assert torch.equal(batch.mask_mod()(r, torch.zeros_like(r), q, k), wanted)


@given(GROUPS, BUDGET)
@settings(max_examples=60, deadline=None)
def test_positions_equal_the_unshared_rows(
    sizes: list[tuple[int, list[int]]], budget: int | None
) -> None:
    prefixes, suffixes = make(sizes)
    # they do not count up evenly, as those of images do not
    draw = torch.Generator().manual_seed(7)
    positions = [torch.randint(0, 2 * len(p), (3, len(p)), generator=draw) for p in prefixes]
    batch = pack_shared_prefix(prefixes, suffixes, token_budget=budget)
    reference = unshared_rows(prefixes, suffixes, positions)
    packed = batch.position_ids(positions)
    assert packed.shape == (3, *batch.input_ids.shape)
    assert torch.equal(batch.targets, reference.targets)
    assert torch.equal(
        batch.input_ids.flatten()[batch.gather], reference.input_ids.flatten()[reference.gather]
    )
    assert torch.equal(
        packed.flatten(1)[:, batch.gather], reference.positions.flatten(1)[:, reference.gather]
    )
    assert (packed[:, batch.group < 0] == 0).all()
    for b, given_positions in enumerate(positions):
        start = int(batch.start_of_group[b])
        here = packed.flatten(1)[:, start : start + len(prefixes[b])]
        assert torch.equal(here, given_positions)


def test_first_fit_keeps_groups_whole() -> None:
    sizes = [(4, [2]), (3, [4]), (2, [1]), (9, [9]), (1, [])]
    batch = pack_shared_prefix(*make(sizes), token_budget=10)
    # 6 | 7 | 3 joins row 0 | 18 is over the budget: a row of its own | 1 joins row 0.
    assert batch.row_of_group.tolist() == [0, 1, 0, 2, 0]
    assert batch.start_of_group.tolist() == [0, 18, 6, 36, 9]
    assert batch.input_ids.shape == (3, 18)


def test_no_budget_is_one_group_a_row() -> None:
    batch = pack_shared_prefix(*make([(2, [1, 1]), (3, []), (1, [4])]))
    assert batch.row_of_group.tolist() == [0, 1, 2]


def test_empty_batch_has_shapes() -> None:
    batch = pack_shared_prefix([], [])
    assert batch.input_ids.shape == (0, 0)
    assert batch.offsets.tolist() == [0]
    assert batch.attention_mask().shape == (0, 1, 0, 0)
    assert batch.position_ids([]).shape == (1, 0, 0)


def test_bad_input_is_told() -> None:
    one, two = torch.tensor([1]), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="1 prefixes and 0 lists"):
        pack_shared_prefix([one], [])
    with pytest.raises(ValueError, match="group 0 has an empty prefix"):
        pack_shared_prefix([one[:0]], [[two]])
    with pytest.raises(ValueError, match="group 0: the suffix 1 is torch.int32"):
        pack_shared_prefix([one], [[two, two.int()]])
    with pytest.raises(ValueError, match="token_budget is 0"):
        pack_shared_prefix([one], [[two]], token_budget=0)
    with pytest.raises(ValueError, match="group 0: the suffix 0 is on meta and the first"):
        pack_shared_prefix([one], [[two.to("meta")]])
    batch = pack_shared_prefix([two], [[two]])
    with pytest.raises(ValueError, match="0 position tensors for 1"):
        batch.position_ids([])


@pytest.mark.parametrize("kind", [SharedPrefixBatch, AttentionLayout])
@pytest.mark.parametrize(("device", "ahead"), [("cuda:1", True), ("cpu", False)])
def test_what_goes_to_a_cpu_has_arrived(kind: Any, device: str, ahead: bool) -> None:
    """A copy from a GPU that nobody waits for is read on the CPU before it has arrived."""
    asked: list[tuple[str, bool]] = []

    class Part:
        def to(self, device: Any, *, non_blocking: bool) -> Part:
            asked.append((str(device), non_blocking))
            return self

    names = [field.name for field in fields(kind)]
    moved = kind(**{name: Part() for name in names}).to(device)
    assert asked == [(device, ahead)] * len(names) and type(moved) is kind


# The rows that a loss reads: taken as they are, gradients summed in order and rounded once.
PLACES = torch.tensor([3, 3, 7, 0, 3, 9, *[5] * 40, 3])


@pytest.mark.parametrize("widened", [1 << 25, 3 * len(PLACES)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_is_the_sum_rounded_once(
    dtype: torch.dtype, widened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "WIDENED", widened)  # in one go, and three columns at a time
    generator = torch.Generator().manual_seed(0)
    # Numbers of 8 bits: their sums are exact in fp32, and most of them not in bf16.
    drawn = torch.randint(-128, 128, (len(PLACES), 2, 4), generator=generator) / 64
    values = torch.randn(10, 2, 4, generator=generator).to(DEVICE, dtype).requires_grad_()
    out = gather_rows(values, PLACES.to(DEVICE))
    assert torch.equal(out, values[PLACES.to(DEVICE)])
    out.backward(drawn.to(DEVICE, dtype))
    total = torch.zeros(10, 2, 4, dtype=torch.float64).index_add_(0, PLACES, drawn.double())
    assert torch.equal(values.grad.cpu(), total.to(dtype))
    assert not torch.equal(total, total.bfloat16().double())


@pytest.mark.parametrize(("width", "places"), [(3, []), (0, [1, 1]), (0, [])])
def test_nothing_taken_has_no_gradient(width: int, places: list[int]) -> None:
    values = torch.ones(4, width, device=DEVICE, requires_grad=True)
    gather_rows(values, torch.tensor(places, dtype=torch.int64, device=DEVICE)).sum().backward()
    assert values.grad.shape == values.shape and values.grad.eq(0).all()


def atomics(operator: Any, args: Any, _: Any) -> list[str]:
    """The operators that add on a GPU in whatever order its threads come, given any numbers."""
    name = operator.overloadpacket.__name__
    if name not in ("index_add", "index_add_", "scatter_add", "scatter_add_", "index_put_"):
        return []
    tensors = [x for x in args if isinstance(x, Tensor)]
    places = next(x for x in tensors if x.dtype == torch.int64)
    added = tensors[-1].flatten(1).ne(0).any(1)
    return [name] if len(places[added].unique()) < int(added.sum()) else []


def test_no_row_is_summed_by_atomics() -> None:
    values = torch.ones(10, 4, device=DEVICE, requires_grad=True)
    for take, atomic in ((gather_rows, False), (Tensor.index_select, True)):
        with Operators(atomics) as seen:
            places = PLACES.to(DEVICE)
            out = take(values, places) if take is gather_rows else take(values, 0, places)
            torch.autograd.grad(out.sum(), values)
        assert bool(seen.noted) == atomic
    batch = pack([(5, [3, 6, 2]), (4, [2, 2])], None)
    query, key, value = inputs(batch, torch.float32)
    out = shared_prefix_attention(query, key, value, attention_layout(batch))
    weights = torch.linspace(1, 2, out.numel(), device=DEVICE).view_as(out)
    read = (batch.group >= 0)[:, None, :, None]
    with Operators(atomics) as seen:
        torch.autograd.grad((out * weights * read).sum(), (query, key, value))
    assert not seen.noted
