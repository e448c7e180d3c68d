"""Log-probabilities and entropy of TRL 1.16: its chunked head and its Triton kernel over logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import linear_token_logps, token_logps
from tests.parity.padded import peer

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

kernels = peer("trl.kernels")

ROWS, WIDTH, VOCABULARY, SLICE = 9, 8, 37, 8
FP32 = {"rtol": 1e-4, "atol": 2e-6}


def draw(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(ROWS, WIDTH, generator=generator),
        torch.randn(VOCABULARY, WIDTH, generator=generator),
        torch.randn(VOCABULARY, generator=generator),
        torch.randint(0, VOCABULARY, (ROWS,), generator=generator),
    )


def by_trl(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    logps, entropy, *_ = kernels.ChunkedLogProbFunction.apply(
        hidden, weight, bias, targets, temperature, SLICE, softcap, 1.0, ("entropy",)
    )
    return logps, entropy


@pytest.mark.parametrize(
    ("with_bias", "temperature", "softcap"),
    [(False, 1.0, None), (True, 0.7, None), (False, 1.3, 5.0), (True, 0.7, 2.0)],
)
def test_chunked_head(with_bias: bool, temperature: float, softcap: float | None) -> None:
    hidden, *head, targets = draw(1)
    # At twice these logits TRL's fp32 gradient is 4e-6 from fp64 on some machines, ours 1.6e-6.
    numbers = [hidden / 2, *head]
    generator = torch.Generator().manual_seed(2)
    coef = torch.randn(2, ROWS, generator=generator)
    coef[:, :3] = 0.0

    def run(ours: bool, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in numbers[: 3 if with_bias else 2]]
        bias = leaves[2] if with_bias else None
        if ours:
            logps, entropy = linear_token_logps(
                leaves[0],
                leaves[1],
                targets,
                bias=bias,
                temperature=temperature,
                softcap=softcap,
                entropy=True,
            )
        else:
            logps, entropy = by_trl(leaves[0], leaves[1], bias, targets, temperature, softcap)
        total = (coef[0] * logps + coef[1] * entropy).sum()
        return [logps.detach(), entropy.detach(), *torch.autograd.grad(total, leaves)]

    for mine, theirs, exact in zip(run(True), run(False), run(True, torch.float64), strict=True):
        assert theirs.any()
        torch.testing.assert_close(mine, theirs, **FP32)
        torch.testing.assert_close(mine.double(), exact.double(), **FP32)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_triton_kernel_over_logits(temperature: float) -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(2, 5, VOCABULARY, generator=generator)
    targets = torch.randint(0, VOCABULARY, (2, 5), generator=generator)
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]]).bool()
    coef = torch.randn(2, 2, 5, generator=generator)

    logits = values.clone().requires_grad_()
    logps, entropy = kernels.selective_log_softmax_and_entropy(
        logits, targets, temperature=temperature, row_mask=mask
    )
    (theirs,) = torch.autograd.grad((coef[0] * logps + coef[1] * entropy).sum(), logits)
    logits = values.clone().requires_grad_()
    out = token_logps(logits, targets, temperature=temperature, entropy=True)
    total = (mask * (coef[0] * out.logps + coef[1] * out.entropy)).sum()
    (mine,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(out.logps[mask], logps[mask], **FP32)
    torch.testing.assert_close(out.entropy[mask], entropy[mask], **FP32)
    torch.testing.assert_close(mine, theirs, **FP32)
    assert theirs.any()


def test_trl_gives_nan_where_a_slice_of_the_vocabulary_is_forbidden() -> None:
    """A bias of -inf over the first slice: exp(-inf - -inf) in TRL's running sum."""
    hidden, weight, bias, targets = draw(4)
    bias[:SLICE] = -torch.inf
    targets = targets.clamp(min=SLICE)
    truth = (hidden.double() @ weight.double().T + bias.double()).log_softmax(-1)
    truth = truth.gather(-1, targets[:, None])[:, 0]
    theirs, _ = by_trl(hidden, weight, bias, targets)
    assert theirs.isnan().all()
    mine = linear_token_logps(hidden, weight, targets, bias=bias).logps
    torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-6)
