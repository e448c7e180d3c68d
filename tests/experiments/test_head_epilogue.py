"""A product that sums its own softmax, against fp64 and chosen by rule; and its bound launches."""

from __future__ import annotations

from typing import TYPE_CHECKING
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

if TYPE_CHECKING:
    import triton.language as tl

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


GROUP = (50 << 20) // 3 // (2 * WIDTH * 128)
H100 = chosen.Card(90, 132, 80 << 30, 50 << 20, 261.0)


def test_the_card_decides(monkeypatch) -> None:
    monkeypatch.delenv("RRGKERN_HEAD", raising=False)
    x = problem()
    wide_head = x._replace(hidden=torch.empty(1, 4608, dtype=torch.bfloat16, device="meta"))
    odd = x._replace(hidden=x.hidden[:, :20])
    assert chosen.choose(H100, x) == (chosen.TILES[90][0], 132, 80 << 24, GROUP)
    assert chosen.choose(H100, problem(softcap=3.0)) == (chosen.TILES[90][1], 132, 80 << 24, GROUP)
    assert chosen.choose(H100, wide_head) is None  # the bytes are the lesser part
    fp32, none = x._replace(weight=x.weight.float()), chosen.Card.of(torch.device("cpu"))
    unmeasured = H100._replace(balance=torch.inf)
    for card, head_ in ((none, x), (H100, fp32), (H100, odd), (unmeasured, x)):
        assert chosen.choose(card, head_) is None
    monkeypatch.setenv("RRGKERN_HEAD", "epilogue")
    assert chosen.choose(H100, wide_head) is not None
    with pytest.raises(ValueError, match="RRGKERN_HEAD is 'epilogue' and hidden has a width of 20"):
        chosen.choose(H100, odd)
    monkeypatch.setenv("RRGKERN_HEAD", "tiles")
    assert chosen.choose(H100, x) is None
    monkeypatch.setenv("RRGKERN_HEAD", "b")
    with pytest.raises(ValueError, match="RRGKERN_HEAD is 'b', wanted epilogue or tiles"):
        chosen.choose(H100, x)


def somewhere(aligned_ptr, anywhere_ptr, size, count, factor: tl.float64, MODE: tl.constexpr):
    raise AssertionError("only its parameters are read")


def test_launches_share_a_kernel_where_triton_would_share_it() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    from experiments.bound_launch import Bound

    anywhere = {"do_not_specialize_on_alignment": ["anywhere_ptr"]}
    kernel = JITFunction(somewhere, do_not_specialize=["count"], **anywhere)
    backend = make_backend(GPUTarget("cuda", 90, 32))
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    memory = [torch.empty(64), torch.empty(64, dtype=torch.bfloat16)]
    parts = [part[at:] for part in memory for at in (0, 1, 8)]
    numbers = [1, 2, 16, 17, 1 << 31, 1 << 40, (1 << 63) + 16, 0.5]
    calls = [
        *(((a, b, n, m, 0.5), {"MODE": True, "num_warps": 4})
          for a in parts for b in [*parts, None] for n in numbers for m in numbers),
        *(((parts[0], None, 2, 2, 0.5), {"MODE": mode, "num_warps": warps})
          for mode in (True, False, None) for warps in (4, 8)),
    ]  # fmt: skip
    specialised: dict[object, set[str]] = {}
    for arguments, constants in calls:
        _, found, options = binder(*arguments, **constants)
        key = Bound(kernel).key(arguments, constants)
        specialised.setdefault(key, set()).add(repr((found, options)))
    assert all(len(kernels) == 1 for kernels in specialised.values())
    assert len(specialised) < len(calls) / 2
