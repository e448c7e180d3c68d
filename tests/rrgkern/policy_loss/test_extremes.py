"""Log-ratios without end, values that are missing, and both sides of every clip edge."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.policy_loss.op import policy_loss_fwd
from rrgkern.policy_loss.reference import METRICS, policy_loss_reference
from rrgkern.policy_loss.spec import RATIO_LEVELS, SURROGATES
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.cases import Batch, batch

# NumPy, under Triton's interpreter, warns of the inf - inf that `where` then leaves aside.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
SERVERS = pytest.mark.parametrize("serve", [policy_loss_fwd, policy_loss_reference])
E20 = math.exp(20.0)


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=DEVICE)


def tokens(log_ratios: list[float], advantages: list[float], **more: Tensor) -> Batch:
    """One sequence a token, all with scale 1."""
    n = len(log_ratios)
    logps = torch.full((n,), -1.0, dtype=torch.float64, device=DEVICE)
    return Batch(
        logps=logps,
        advantages=double(advantages),
        offsets=torch.arange(n + 1, device=DEVICE),
        scale=torch.ones_like(logps),
        old=logps - double(log_ratios),
        **more,
    )


def losses(serve, spec: PolicyLoss, data: Batch) -> tuple[list[float], list[float], list[float]]:
    """Loss, coef and removed share (low, high) of each token alone."""
    values, slopes, removed = [], [], []
    for t in range(data.logps.numel()):
        one = Batch(
            *(
                None if x is None else (data.offsets[:2] if x is data.offsets else x[t : t + 1])
                for x in data.tensors()
            )
        )
        loss, coef, _, metrics = serve(*one.arguments(spec))
        values.append(float(loss))
        slopes.append(float(coef))
        named = dict(zip(METRICS, metrics.tolist(), strict=True))
        removed.append(named["clip_high"] - named["clip_low"])
    return values, slopes, removed


@SERVERS
@pytest.mark.parametrize("far", [95.0, math.inf])
def test_far_ratios_of_the_clip(serve, far: float) -> None:
    data = tokens([far, far, -far, -far, far, -far], [1.0, -1.0, 1.0, -1.0, 0.0, 0.0])
    values, slopes, removed = losses(serve, PolicyLoss(), data)
    assert values == pytest.approx([-1.2, E20, -1 / E20, 0.8, 0.0, 0.0])
    assert slopes == [0.0] * 6  # clipped, or beyond the clamp, or without advantage
    assert removed == [1.0, 0.0, 0.0, -1.0, 0.0, 0.0]


@SERVERS
@pytest.mark.parametrize("dtype", [torch.float32, *more(torch.float64)])
@pytest.mark.parametrize(
    ("surrogate", "level"),
    [
        *itertools.product(("clip", "cispo", "sapo", "reinforce"), RATIO_LEVELS),
        ("vespo", "token"),
        ("gmpo", "sequence"),
    ],
)
def test_no_far_ratio_makes_a_nan(serve, surrogate: str, level: str, dtype: torch.dtype) -> None:
    spec = PolicyLoss(surrogate=surrogate, ratio_level=level, beta=0.1, kl_ratio_weight=True)
    for far in (95.0, math.inf):
        d = [far, -far, far, -far, far, 0.1]
        data = tokens(d, [1.0, -1.0, -1.0, 1.0, 0.0, 1.0])
        data = data.changed(
            offsets=torch.tensor([0, 2, 3, 4, 5, 6, 6], device=DEVICE),
            ref=data.logps + double([far, -far, -far, far, 1.0, -1.0]),
            sampler=data.old + double([far, -far, -far, far, 1.0, -1.0]),
        )
        if math.isinf(far):  # +inf and -inf in one sequence have no mean
            data = data.changed(offsets=torch.arange(7, device=DEVICE))
        loss, coef, _, metrics = serve(*data.to(dtype).arguments(spec))
        assert loss.isfinite() and coef.isfinite().all() and metrics.isfinite().all()


@SERVERS
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_missing_sampler_value_corrects_nothing(serve, level: str) -> None:
    data = batch(0, mask=False)
    third = torch.arange(20, device=DEVICE) % 3 == 0
    missing = data.changed(sampler=torch.where(third, torch.nan, data.sampler))
    matching = data.changed(sampler=torch.where(missing.sampler.isnan(), data.old, data.sampler))
    spec = PolicyLoss(sampler_level=level, sampler_max=1.5)
    for got, want in zip(
        serve(*missing.arguments(spec)), serve(*matching.arguments(spec)), strict=True
    ):
        assert torch.equal(got, want)


@SERVERS
def test_a_token_impossible_under_both_policies_has_ratio_one(serve) -> None:
    data = tokens([0.0], [2.0]).changed(logps=double([-torch.inf]))
    for old in (None, data.logps):
        _, coef, _, metrics = serve(*data.changed(old=old).arguments(PolicyLoss()))
        assert coef.tolist() == [-2.0]
        assert metrics[METRICS.index("ratio_max")] == 1


@SERVERS
@pytest.mark.parametrize("surrogate", ["reinforce", "cispo"])
def test_no_advantage_times_minus_infinity_is_zero(serve, surrogate: str) -> None:
    data = tokens([0.0, 0.0], [0.0, 1.0])
    data = data.changed(logps=double([-torch.inf, -1.0]), old=None)
    loss, coef, _, _ = serve(*data.arguments(PolicyLoss(surrogate=surrogate)))
    assert float(loss) == 1.0 and coef.tolist() == [0.0, -1.0]


@SERVERS
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("old", [True, False])
def test_a_nan_policy_is_never_hidden(serve, surrogate: str, old: bool) -> None:
    level = "sequence" if surrogate in ("luspo", "gmpo") else "token"
    data = batch(0, old=old, mask=False)
    data = data.changed(logps=data.logps.index_fill(0, torch.tensor([5], device=DEVICE), torch.nan))
    loss, _, _, metrics = serve(*data.arguments(PolicyLoss(surrogate=surrogate, ratio_level=level)))
    assert loss.isnan()
    assert metrics[METRICS.index("ratio_mean")].isnan()
    assert metrics[METRICS.index("ratio_max")].isnan()


@SERVERS
@pytest.mark.parametrize("side", [-1, 1])
def test_both_sides_of_the_clip_edges(serve, side: int) -> None:
    step = side * 1e-9
    spec = PolicyLoss(eps_low=0.1, eps_high=0.3, dual_clip=2.0)
    edges = [math.log(1.3) + step, math.log(0.9) + step, math.log(2.0) + step]
    _, slopes, removed = losses(serve, spec, tokens(edges, [1.0, -1.0, -1.0]))
    if side > 0:
        assert slopes == pytest.approx([0.0, 0.9, 0.0], rel=1e-8)
        assert removed == [1.0, 0.0, 1.0]
    else:
        assert slopes == pytest.approx([-1.3, 0.0, 2.0], rel=1e-8)
        assert removed == [0.0, -1.0, 0.0]
    # The other sign of the advantage is never clipped there.
    _, slopes, removed = losses(serve, spec, tokens(edges[:2], [-1.0, 1.0]))
    assert slopes == pytest.approx([1.3, -0.9], rel=1e-8)
    assert removed == [0.0, 0.0]


@SERVERS
def test_on_the_edge_the_gradient_is_kept(serve) -> None:
    spec = PolicyLoss(eps_low=0.0, eps_high=0.0)  # the edge is the ratio 1, which exp(0) hits
    d = [0.0, 0.0, 2.0**-40, 2.0**-40, -(2.0**-40), -(2.0**-40)]
    _, slopes, removed = losses(serve, spec, tokens(d, [1.0, -1.0] * 3))
    assert slopes == pytest.approx([-1.0, 1.0, 0.0, 1.0, -1.0, 0.0], rel=1e-9)
    assert removed == [0.0, 0.0, 1.0, 0.0, 0.0, -1.0]


@SERVERS
def test_cispo_keeps_the_gradient_that_it_bounds(serve) -> None:
    data = tokens([1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0])
    bounded = PolicyLoss(surrogate="cispo", eps_low=0.5, eps_high=1.0)
    _, slopes, removed = losses(serve, bounded, data)
    assert slopes == pytest.approx([-2.0, -0.5, 2.0, 0.5])
    assert removed == [1.0, -1.0, 1.0, -1.0]
    unbounded = PolicyLoss(surrogate="cispo", eps_low=None, eps_high=1.0)
    _, slopes, removed = losses(serve, unbounded, data)
    assert slopes == pytest.approx([-2.0, -math.exp(-1), 2.0, math.exp(-1)])
    assert removed == [1.0, 0.0, 1.0, 0.0]


@SERVERS
@pytest.mark.parametrize(("kl", "value"), [("k1", 20.0), ("k2", 200.0), ("k3", 19.0)])
def test_a_reference_that_excludes_the_token(serve, kl: str, value: float) -> None:
    data = tokens([0.0], [0.0]).changed(ref=double([-torch.inf]))
    loss, coef, _, _ = serve(*data.arguments(PolicyLoss(kl=kl, beta=1.0)))
    assert float(loss) == pytest.approx(value) and coef.tolist() == [0.0]


@SERVERS
def test_a_tiny_divergence_keeps_its_digits(serve) -> None:
    data = tokens([0.0], [0.0]).changed(logps=double([-0.5]), old=None)
    data = data.changed(ref=data.logps + 2.0**-14).to(torch.float32)
    loss, coef, _, _ = serve(*data.arguments(PolicyLoss(beta=1.0)))
    x = 2.0**-14
    assert float(coef) == pytest.approx(-math.expm1(x), rel=1e-6)
    if serve is policy_loss_fwd:  # exp(x) - 1 - x in fp32 would be wrong in every digit
        assert float(loss) == pytest.approx(x * x / 2 * (1 + x / 3), rel=1e-6)
