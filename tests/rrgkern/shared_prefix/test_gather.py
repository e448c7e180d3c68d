"""The rows that a loss reads: taken as they are, gradients summed in order and rounded once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rrgkern.shared_prefix import attention_layout, gather, gather_rows, shared_prefix_attention
from tests.rrgkern.device import DEVICE
from tests.rrgkern.shared_prefix.test_attention import inputs, pack

PLACES = torch.tensor([3, 3, 7, 0, 3, 9, *[5] * 40, 3])


@pytest.mark.parametrize("widened", [1 << 25, 3 * len(PLACES)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_is_the_sum_rounded_once(
    dtype: torch.dtype, widened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "WIDENED", widened)  # in one go, and three columns at a time
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


class Atomics(TorchDispatchMode):
    """The operators that add on a GPU in whatever order its threads come, given any numbers."""

    found: tuple[str, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("index_add", "index_add_", "scatter_add", "scatter_add_", "index_put_"):
            tensors = [x for x in args if isinstance(x, Tensor)]
            places = next(x for x in tensors if x.dtype == torch.int64)
            added = tensors[-1].flatten(1).ne(0).any(1)
            if len(places[added].unique()) < int(added.sum()):
                self.found += (name,)
        return out


def test_no_row_is_summed_by_atomics() -> None:
    values = torch.ones(10, 4, device=DEVICE, requires_grad=True)
    for take, atomic in ((gather_rows, False), (Tensor.index_select, True)):
        with Atomics() as seen:
            places = PLACES.to(DEVICE)
            out = take(values, places) if take is gather_rows else take(values, 0, places)
            torch.autograd.grad(out.sum(), values)
        assert bool(seen.found) == atomic
    batch = pack([(5, [3, 6, 2]), (4, [2, 2])], None)
    query, key, value = inputs(batch, torch.float32)
    out = shared_prefix_attention(query, key, value, attention_layout(batch))
    weights = torch.linspace(1, 2, out.numel(), device=DEVICE).view_as(out)
    read = (batch.group >= 0)[:, None, :, None]
    with Atomics() as seen:
        torch.autograd.grad((out * weights * read).sum(), (query, key, value))
    assert not seen.found
