"""Hidden states that are padded, and fp32 heads under 16-bit states: nothing is copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rrgkern import linear_policy_loss, linear_token_logps
from tests.products import more
from tests.rrgkern.device import DEVICE


def test_states_that_are_padded_or_sliced_are_not_copied() -> None:
    """A mask that keeps two rows of many: no memory of the size of the rest is asked for."""
    width, length = 256, 512
    hidden = torch.randn(2, length + 1, width, device=DEVICE)
    weight = torch.randn(16, width, device=DEVICE)
    mask = torch.zeros(2, length, dtype=torch.bool, device=DEVICE)
    mask[0, 3] = mask[1, 7] = True
    ids = torch.full((2, length), -100, device=DEVICE).masked_fill(mask, 1)
    advantages = torch.ones(2, device=DEVICE)
    for states in (hidden[:, :-1], hidden[:, 1:], hidden[:, :length]):
        for call in (
            lambda s=states: linear_token_logps(s, weight, ids, mask=mask),
            lambda s=states: linear_policy_loss(
                s, weight, ids, advantages, scale=advantages, mask=mask
            ),
        ):
            call()  # a GPU's first product asks for its library's workspace
            largest = largest_allocation(call)
            assert largest < states.numel() * 4 // 8, largest


@pytest.mark.parametrize("dtype", [torch.bfloat16, *more(torch.float16)])
def test_fp32_weights_are_rounded_tile_by_tile(dtype: torch.dtype) -> None:
    """Equal to the rounded weight, its gradient in fp32, and no second [V, H] in the forward."""
    generator = torch.Generator().manual_seed(0)
    vocabulary, width, rows = 3000, 64, 40
    plain = torch.randn(vocabulary, width, generator=generator).to(DEVICE)
    targets = torch.randint(vocabulary, (rows,), generator=generator).to(DEVICE)
    advantages = torch.randn(1, rows, generator=generator).to(DEVICE)
    offsets = torch.arange(0, rows + 1, 4, device=DEVICE)
    scale = torch.full((10,), 0.1, device=DEVICE)
    states = torch.randn(rows, width, generator=generator).to(DEVICE, dtype)

    def outcome(weight: Tensor, mode: str, states: Tensor = states) -> list[Tensor]:
        hidden, head = states.clone().requires_grad_(), weight.clone()
        head.requires_grad_(mode != "frozen_head")
        if mode == "logps":
            loss = linear_token_logps(hidden, head, targets).logps.sum()
        else:
            loss = linear_policy_loss(
                hidden, head, targets, advantages, offsets, scale=scale, mode=mode
            ).loss
        loss.backward()
        grads = [] if head.grad is None else [head.grad]
        assert all(grad.dtype == weight.dtype for grad in grads)
        return [loss.detach(), hidden.grad, *grads]

    for mode in ("logps", "recompute", "grad_in_forward", "frozen_head"):
        if mode == "grad_in_forward" and dtype == torch.float16:
            continue  # refused there
        wide, rounded = outcome(plain, mode), outcome(plain.to(dtype), mode)
        for ours, theirs in zip(wide, rounded, strict=True):
            assert torch.equal(ours.to(theirs.dtype), theirs), (mode, dtype)
        if len(wide) == 3:  # in fp32 it has digits that 16 bits have not
            assert not torch.equal(wide[2], wide[2].to(dtype).float()), mode
    head = torch.randn(50_000, width, device=DEVICE)
    few = states[:4], head, targets[:4]
    with torch.no_grad():
        largest = largest_allocation(lambda few=few: linear_token_logps(*few))
    assert largest < head.numel() * head.element_size() // 2, largest
    with pytest.raises(TypeError, match="weight is torch.float64 and hidden is"):
        linear_token_logps(states, plain.double(), targets)


def largest_allocation(call: Callable[[], object]) -> int:
    """Bytes of the largest single tensor that operations under `call` make."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    sizes = [e.nbytes() for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(sizes)
