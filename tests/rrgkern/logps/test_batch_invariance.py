"""From hidden states a row's bits are its own among as many rows, whatever the others hold."""

from __future__ import annotations

import pytest
import torch

from rrgkern import linear_token_logps
from tests.rrgkern.device import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
ROWS, WIDTH, VOCABULARY = 12, 32, 301


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_keeps_its_bits_among_as_many_rows(kernel, dtype) -> None:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

    weight, hidden = normal(VOCABULARY, WIDTH), normal(ROWS, WIDTH)
    targets = torch.randint(VOCABULARY, (ROWS,), generator=generator).to(DEVICE)
    together = linear_token_logps(hidden, weight, targets, entropy=True)
    for row in (0, 5, ROWS - 1):
        for others in (30 * normal(ROWS, WIDTH), torch.zeros(ROWS, WIDTH, device=DEVICE).to(dtype)):
            others[row] = hidden[row]
            among = torch.zeros_like(targets)
            among[row] = targets[row]
            padded = linear_token_logps(others, weight, among, entropy=True)
            for one, wanted in zip(padded, together, strict=True):
                assert torch.equal(one[row], wanted[row])
