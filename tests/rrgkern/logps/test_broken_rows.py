"""A row with an overflow has entropy NaN, whoever serves, and so have the losses made of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import (
    PolicyLoss,
    linear_policy_loss,
    linear_token_logps,
    policy_loss_from_logits,
    token_logps,
)
from rrgkern.logps.reference import token_logps_reference
from tests.rrgkern.backends import serve
from tests.rrgkern.device import DEVICE

BONUS = PolicyLoss("reinforce", entropy_coef=0.1)
INF, NAN = torch.inf, torch.nan
ROWS = 8


def broken(vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, targets, and which rows are broken."""
    z = torch.randn(ROWS, vocabulary, generator=torch.Generator().manual_seed(3))
    targets = torch.full((ROWS,), 1)
    z[0] = -INF
    z[1, 2] = INF
    z[2, 1] = INF
    z[3, vocabulary - 1] = NAN
    z[4, 1] = NAN
    # These are whole: certain of the target, certain of another, and a target that is excluded.
    z[5], z[5, 1] = -INF, 2.0
    z[6], z[6, 2] = -INF, 2.0
    z[7, 1] = -INF
    return z.to(DEVICE), targets.to(DEVICE), torch.arange(ROWS, device=DEVICE) < 5


@pytest.mark.parametrize("backend", ["extension", "reference", "as it is"])
def test_entropy_of_a_broken_row_is_nan(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend != "as it is" and DEVICE != "cpu":
        pytest.skip("serves CPUs")
    serve(monkeypatch, backend)
    # From hidden states a wide vocabulary is swept in tiles.
    for vocabulary in (9, 1500):
        z, targets, wrong = broken(vocabulary)
        expected = token_logps_reference(z, targets)[1]
        assert torch.equal(expected.isnan(), wrong)
        # NaN and inf would spoil a product with the states, so the logits come as bias.
        found = {"token_logps": token_logps(z, targets, entropy=True).entropy}
        by_row = [_from_hidden(z[row], targets[row]) for row in range(ROWS)]
        found["linear_token_logps"] = torch.stack(by_row)
        for name, entropy in found.items():
            torch.testing.assert_close(
                entropy, expected, rtol=1e-5, atol=1e-6, equal_nan=True, msg=f"{name} {vocabulary}"
            )


def _from_hidden(row: Tensor, target: Tensor) -> Tensor:
    hidden, weight = torch.zeros(1, 2, device=DEVICE), torch.zeros(len(row), 2, device=DEVICE)
    return linear_token_logps(hidden, weight, target[None], bias=row, entropy=True).entropy[0]


@pytest.mark.parametrize("backend", ["extension", "reference", "as it is"])
def test_a_loss_with_a_broken_row_is_nan(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advantages of 0 leave the entropy alone in the loss."""
    if backend != "as it is" and DEVICE != "cpu":
        pytest.skip("serves CPUs")
    serve(monkeypatch, backend)
    offsets, one = torch.tensor([0, 1], device=DEVICE), torch.ones(1, device=DEVICE)
    rest = {"advantages": 0 * one, "offsets": offsets, "scale": one, "spec": BONUS}
    for vocabulary in (9, 1500):
        z, targets, wrong = broken(vocabulary)
        weight = torch.zeros(vocabulary, 2, device=DEVICE)
        # -inf of the log-probability times an advantage of 0 is NaN too.
        for row in [0, 2, 4, 5] if vocabulary == 9 else [0, 5]:
            row_of, target = z[row : row + 1], targets[row : row + 1]
            hidden = torch.zeros(1, 2, device=DEVICE)
            results = (
                policy_loss_from_logits(row_of, target, **rest),
                linear_policy_loss(hidden, weight, target, **rest, bias=row_of[0], entropy=True),
            )
            for loss, metrics in results:
                assert loss.isnan() == metrics["entropy"].isnan() == wrong[row], (vocabulary, row)
