"""Every function compiles once for batches of any size, and runs where values do not exist."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import rrgkern
from rrgkern import linear_policy_loss, linear_token_logps
from tests.products import more
from tests.rrgkern.device import DEVICE

WIDTH, VOCABULARY = 3, 7
BONUS = rrgkern.PolicyLoss(entropy_coef=0.1)
TIED = rrgkern.PolicyLoss(ratio_level="sequence")
Batch = tuple[Tensor, ...]


def batch(rows: int, sequences: int) -> Batch:
    """hidden, weight, targets, advantages, offsets, old."""
    cuts = torch.linspace(0, rows, sequences + 1).long()
    hidden, weight = torch.randn(rows, WIDTH), torch.randn(VOCABULARY, WIDTH)
    targets, old = torch.arange(rows) % VOCABULARY, -torch.rand(rows) - 1
    moved = [x.to(DEVICE) for x in (hidden, weight, targets, torch.randn(sequences), cuts, old)]
    return moved[0].requires_grad_(), moved[1].requires_grad_(), *moved[2:]


def _rest(advantages: Tensor, offsets: Tensor, old: Tensor) -> dict[str, Tensor]:
    scale = rrgkern.loss_scale("grpo", offsets)
    return {"advantages": advantages, "offsets": offsets, "scale": scale, "old": old}


def _token_logps(h: Tensor, w: Tensor, t: Tensor, *_: Tensor) -> Tensor:
    logps, entropy = rrgkern.token_logps(h @ w.T, t, entropy=True)
    return (logps + entropy).sum()


def _masked_logps(h: Tensor, w: Tensor, t: Tensor, *_: Tensor) -> Tensor:
    return rrgkern.token_logps(h @ w.T, t, mask=t > 2).logps.sum()


def _head_logps(h: Tensor, w: Tensor, t: Tensor, *_: Tensor) -> Tensor:
    logps, entropy = rrgkern.linear_token_logps(h, w, t, entropy=True)
    return (logps + entropy).sum()


def _policy(h: Tensor, w: Tensor, t: Tensor, *rest: Tensor) -> Tensor:
    logps, entropy = (h @ w.T)[:, :2].unbind(1)
    out = rrgkern.policy_loss(logps, **_rest(*rest), entropy=entropy, spec=BONUS)
    return out.loss + out.metrics["ratio_mean"]


def _one_pass(h: Tensor, w: Tensor, t: Tensor, *rest: Tensor) -> Tensor:
    return rrgkern.policy_loss_from_logits(h @ w.T, t, **_rest(*rest), inplace=True).loss


def _composed(h: Tensor, w: Tensor, t: Tensor, *rest: Tensor) -> Tensor:
    options = {"spec": TIED, "inplace": True}
    return rrgkern.policy_loss_from_logits(h @ w.T, t, **_rest(*rest), **options).loss


def _recompute(h: Tensor, w: Tensor, t: Tensor, *rest: Tensor) -> Tensor:
    return rrgkern.linear_policy_loss(h, w, t, **_rest(*rest), mode="recompute").loss


def _in_forward(h: Tensor, w: Tensor, t: Tensor, *rest: Tensor) -> Tensor:
    return rrgkern.linear_policy_loss(h, w, t, **_rest(*rest), mode="grad_in_forward").loss


def _frozen_head(h: Tensor, w: Tensor, t: Tensor, *rest: Tensor) -> Tensor:
    out = rrgkern.linear_policy_loss(h, w.detach(), t, **_rest(*rest), mode="frozen_head")
    return out.loss + 0 * w.sum() + out.metrics["kl"]


def _preference(
    h: Tensor, w: Tensor, t: Tensor, advantages: Tensor, offsets: Tensor, old: Tensor
) -> Tensor:
    others = torch.ones_like(advantages, dtype=torch.int64)
    pairs = rrgkern.PreferencePairs(others * 0, others, torch.ones_like(advantages))
    out = rrgkern.preference_loss((h @ w.T)[:, 0], old, offsets, pairs)
    return out.loss + out.metrics["margin"]


def _group_advantages(h: Tensor, w: Tensor, t: Tensor, _: Tensor, offsets: Tensor, old: Tensor):
    total = (rrgkern.group_advantages(old, offsets, std="sample") * (h @ w.T)[:, 0]).sum()
    return total + rrgkern.zero_variance_share(old, offsets)


ALL = (
    *(_token_logps, _in_forward, _policy, _composed, _masked_logps, _head_logps, _one_pass),
    *(_recompute, _frozen_head, _preference, _group_advantages),
)
DOORS = (*ALL[:2], *more(*ALL[2:]))


@pytest.mark.parametrize("door", DOORS)
def test_one_compilation_serves_batches_of_any_size(door: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(door, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        # No two axes of one size: they would be taken for one.
        for rows, sequences in ((11, 5), (13, 6), (17, 8)):
            given = batch(rows, sequences)
            losses = compiled(*given), door(*given)
            torch.testing.assert_close(*losses)
            for got, want in zip(
                *(torch.autograd.grad(loss, given[:2]) for loss in losses), strict=True
            ):
                torch.testing.assert_close(got, want)


@pytest.mark.parametrize("door", DOORS)
def test_what_has_no_values_runs(door: Callable[..., Tensor]) -> None:
    with FakeTensorMode() as mode:
        given = [mode.from_tensor(x) for x in batch(11, 5)]
        gradients = torch.autograd.grad(door(*given), given[:2])
    assert [g.shape for g in gradients] == [x.shape for x in given[:2]]


@pytest.mark.parametrize("door", [door for door in ALL if door is not _masked_logps])
def test_two_runs_are_bitwise_equal(door: Callable[..., Tensor]) -> None:
    given = batch(700, 5)
    losses = door(*given), door(*given)
    first, second = ([loss, *torch.autograd.grad(loss, given[:2])] for loss in losses)
    assert all(map(torch.equal, first, second)) and first[1].any()


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_serves_batches_of_any_size(strict: bool) -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Parameter(torch.randn(VOCABULARY, WIDTH, device=DEVICE))

        def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
            return rrgkern.linear_token_logps(hidden, self.head, targets).logps

    scores, rows = Scores(), torch.export.Dim("rows")
    given = [batch(n, 1) for n in (7, 5)]
    hidden, _, targets, *_ = (x.detach() for x in given[0])
    axes = {"hidden": {0: rows}, "targets": {0: rows}}
    program = torch.export.export(scores, (hidden, targets), dynamic_shapes=axes, strict=strict)
    hidden, _, targets, *_ = (x.detach() for x in given[1])
    torch.testing.assert_close(program.module()(hidden, targets), scores(hidden, targets))


# Hidden states that are padded, and fp32 heads under 16-bit states: nothing is copied.
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
