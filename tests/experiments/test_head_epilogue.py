"""A product that sums its own softmax, against fp64."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from rrgkern.logps.head import BackwardRows, Gradients, NeedsGrad
from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats
from tests.rrgkern.logps import from_hidden_oracle as oracle

pytest.importorskip("triton")
from experiments.head_epilogue import card as chosen
from experiments.head_epilogue import head

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
ROWS, WIDTH, VOCABULARY = 70, 24, 331  # of which no tile is a divisor
NEEDS = NeedsGrad(hidden=True, weight=True, bias=True)
OPTIONS = {"bias": True, "temperature": 0.7, "softcap": 6.0}
TILES = {tma: chosen.Tiles(64, 128, 16, 4, 1, tma) for tma in (True, False)}
PLANS = {tma: chosen.Plan(TILES[tma], 3, 64 * 2 * VOCABULARY, group=1 + tma) for tma in TILES}


def problem(bias: bool = False, softcap: float = 0.0, temperature: float = 1.0) -> FromHidden:
    drawn = oracle.problem(ROWS, WIDTH, VOCABULARY, torch.bfloat16, bias)
    drawn.hidden[3] = 4 * drawn.weight[drawn.targets[3]]  # a softmax that has collapsed on it
    return FromHidden(*drawn[:4], temperature, softcap, entropy=True)


def truth(x: FromHidden, *coefs: Tensor | None) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Log-probabilities, entropy and the three gradients in fp64."""
    y = FromHidden(*(t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in x))
    coefficients = Coefficients(*(c if c is None else c.double() for c in coefs))
    logps, entropy = oracle.linear_token_logps_reference(*y[:6])
    return logps, entropy, oracle.linear_token_logps_reference_backward(coefficients, y)


def check_gradients(made: Gradients, exact: tuple[Tensor, ...]) -> None:
    for result, right in zip(made, exact, strict=True):
        assert not len(result) or (result.double() - right).norm() < 4e-3 * right.norm()


def check_statistics(stats: SoftmaxStats, logps: Tensor, entropy: Tensor) -> None:
    assert (stats.logps.double() - logps).abs().max() < 5e-6
    assert (stats.entropy.double() - entropy).abs().max() < 5e-6
    # the collapsed row keeps its digits: a difference of logsumexps would be 0
    assert abs(stats.logps[3].double() / logps[3] - 1) < 1e-3 or logps[3] < -1e-3


@pytest.mark.parametrize("tma", [True, False])
@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_statistics_and_gradients(tma, options) -> None:
    x, plan = problem(**options), PLANS[tma]
    coef = torch.randn(ROWS, generator=torch.Generator().manual_seed(1))
    coef[10:30] = 0
    coefficients = Coefficients(coef, 0.3 * coef.flip(0) if options else None)
    logps, entropy, exact = truth(x, *coefficients)
    stats = head.statistics(x, plan)
    check_statistics(stats, logps, entropy)
    rows = BackwardRows(x.hidden, x.targets, stats, coefficients)
    check_gradients(head.gradients(rows, x, NEEDS, plan), exact)


@pytest.mark.parametrize("tma", [True, False])
@pytest.mark.parametrize("options", [{}, OPTIONS | {"softcap": 0.0}])
def test_exponentials_from_the_base_of_old(tma, options) -> None:
    x, plan = problem(**options), PLANS[tma]
    random = torch.Generator().manual_seed(2)
    logps, entropy, _ = truth(x, torch.zeros(ROWS), None)
    old = logps.float() + torch.randn(ROWS, generator=random)
    # a base 55 nats off still serves; others go by the head of tiles, NaN among them
    old[5], old[6], old[7], old[8] = old[5] + 55, old[6] - 55, old[7] + 90, torch.nan
    coef = torch.randn(ROWS, generator=random)
    with mock.patch.object(head, "tiled_backward", wraps=head.tiled_backward) as by_tiles:
        stats, made = head.with_gradients(x, old, lambda _, block: coef[block], NEEDS, plan)
    assert [len(call.args[0].hidden) for call in by_tiles.call_args_list] == [2]
    check_statistics(stats, logps, entropy)
    check_gradients(made, truth(x, coef, None)[2])


def test_a_broken_row_stays_alone() -> None:
    x = problem()
    x.hidden[4] = torch.nan
    stats = head.statistics(x, PLANS[True])
    assert stats.logps.isnan().nonzero().flatten().tolist() == [4]
    coef, old = torch.ones(ROWS), stats.logps.nan_to_num(-5.0)
    coef[4] = 0
    _, made = head.with_gradients(x, old, lambda _, block: coef[block], NEEDS, PLANS[True])
    assert not made.hidden[4].any() and made.weight.isfinite().all()
    half = x._replace(hidden=x.hidden.half(), weight=x.weight.half())
    with pytest.raises(ValueError, match="hidden is torch.float16 and softcap 0.0, wanted bf"):
        head.with_gradients(half, old, lambda _, block: coef[block], NEEDS, PLANS[True])
