"""The last kernel of verl 0.9.1's fused head, under the interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import linear_token_logps
from tests.parity.padded import peer

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

kernels = peer("verl.utils.kernel.kernels")

ROWS, WIDTH, VOCABULARY, SPLIT = 5, 4, 40, 16


@pytest.fixture(autouse=True)
def _counts_known_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter cannot loop to a number that it holds as an array of one."""
    annotations = kernels.efficient_entropy_triton_kernel_epilogue.fn.rewrite().__annotations__
    monkeypatch.setitem(annotations, "num_splits", "constexpr")
    monkeypatch.setitem(annotations, "reduction", "constexpr")


def by_verl(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities by verl's epilogue from the statistics of each split of the vocabulary.

    verl refuses CPU tensors before it launches anything; its main loop, a matrix product, is
    replaced by the same sums in PyTorch.
    """
    parts = logits.split(SPLIT, dim=1)
    largest = torch.stack([part.amax(1) for part in parts], 1)
    mass = torch.stack([(part - part.amax(1, keepdim=True)).exp().sum(1) for part in parts], 1)
    tilt = torch.zeros_like(mass)
    logps = logits.gather(1, targets[:, None])[:, 0].contiguous()
    outputs = [torch.empty(ROWS) for _ in range(4)]

    def strided(matrix: Tensor) -> tuple[Tensor, int, int]:
        return matrix, matrix.stride(0), matrix.stride(1)

    kernels.efficient_entropy_triton_kernel_epilogue[(1,)](
        *strided(largest),
        ROWS,
        len(parts),
        outputs[0],
        1,
        *strided(mass),
        outputs[1],
        1,
        *strided(tilt),
        outputs[2],
        1,
        outputs[3],
        1,
        logps,
        1,
        logps,
        0,
    )
    return logps


@pytest.mark.parametrize("level", [0.0, -120.0])
def test_verl_gives_infinity_where_every_logit_is_low(level: float) -> None:
    """verl's running maximum begins at 0: exp(-120 - 0) is 0 in fp32, its logarithm -inf."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(ROWS, WIDTH, generator=generator)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator)
    bias = torch.full((VOCABULARY,), level)
    targets = torch.randint(0, VOCABULARY, (ROWS,), generator=generator)
    logits = hidden @ weight.T + bias
    truth = (hidden.double() @ weight.double().T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    mine = linear_token_logps(hidden, weight, targets, bias=bias).logps
    tolerance = {"rtol": 1e-5, "atol": 3e-5}  # fp32 logits of 120 have steps of 8e-6
    torch.testing.assert_close(mine.double(), truth, **tolerance)
    theirs = by_verl(logits, targets)
    if level == 0.0:
        torch.testing.assert_close(theirs.double(), truth, **tolerance)
    else:
        assert theirs.isinf().all()
