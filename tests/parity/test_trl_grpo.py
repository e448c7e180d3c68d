"""Loss, gradient and metrics of TRL 1.16's GRPOTrainer, for every loss that it offers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from rrgkern import PolicyLoss, off_policy_weight, top_entropy_weight
from tests.parity.padded import Padded, Result, assert_same, ours, padded
from tests.parity.trl_grpo import trl

OWN_SURROGATE = ("cispo", "sapo", "luspo", "vespo")
AGGREGATION = {"sapo": "grpo", "luspo": "sum", "cispo": "dapo", "vespo": "dapo"}
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", *OWN_SURROGATE)
# Both sides of each must be met: a sum over a sequence spreads wider than its tokens.
BOUNDS = {"token": (0.7, 1.3), "sequence": (0.4, 2.0)}
# TRL rounds the temperatures to fp32 whatever the dtype of the loss: 1.05 would not be itself.
SAPO = {"sapo_tau_pos": 1.0, "sapo_tau_neg": 1.25}
TRL_NAMES = {"sapo_tau_pos": "sapo_temperature_pos", "sapo_tau_neg": "sapo_temperature_neg"}
SAMPLERS = (None, *itertools.product(("token", "sequence"), ("truncate", "mask")))

# (loss type, level, beta, KL times ratio, sampler): every combination that TRL accepts.
CASES = [
    (loss, level, beta, corrected, sampler)
    for loss, level, (beta, corrected), sampler in itertools.product(
        LOSSES, ("token", "sequence"), ((0.0, False), (0.3, False), (0.3, True)), SAMPLERS
    )
    if not (loss == "luspo" and level == "token")
    and not (loss == "vespo" and (level == "sequence" or (sampler and sampler[0] == "sequence")))
]


def names(case: tuple[Any, ...]) -> str:
    loss, level, beta, corrected, sampler = case
    kl = ("k3r" if corrected else "k3") if beta else "no kl"
    return "-".join((loss, level, kl, "_".join(sampler or ("no sampler",))))


def by_both(
    data: Padded,
    case: tuple[Any, ...],
    *,
    packed: bool,
    dual_clip: bool = True,
    numbers: dict[str, float] | None = None,
    mutant: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Result, Result]:
    """`policy_loss` and TRL on one case; `mutant` changes the spec of the former only."""
    loss, level, beta, corrected, sampler = case
    bounds = BOUNDS[sampler[0] if sampler else "token"]
    if loss == "sapo" and numbers is None:
        numbers = SAPO
    clips = loss not in ("cispo", "sapo", "vespo")
    delta = 1.4 if dual_clip and clips else None
    spec = PolicyLoss(
        surrogate=loss if loss in OWN_SURROGATE else "clip",
        ratio_level=level,
        eps_low=None if loss == "cispo" else 0.1,
        eps_high=0.15,
        dual_clip=delta,
        beta=beta,
        kl_ratio_weight=corrected,
        sampler_level=sampler[0] if sampler else "token",
        sampler_mode=sampler[1] if sampler else "truncate",
        sampler_min=bounds[0],
        sampler_max=bounds[1],
        **(numbers or {}),
    )
    mine = ours(
        data,
        replace(spec, **(mutant or {})),
        AGGREGATION.get(loss, loss),
        packed=packed,
        sampler=sampler is not None,
        **options,
    )
    theirs = trl(
        data,
        loss,
        level,
        beta=beta,
        # TRL bounds CISPO's weight by epsilon_high itself, every other ratio by 1 + epsilon_high.
        epsilon=(0.1, 1.15 if loss == "cispo" else 0.15),
        sampler=sampler,
        sampler_bounds=bounds,
        delta=delta,
        use_bias_correction_kl=corrected,
        **{TRL_NAMES.get(name, name): value for name, value in (numbers or {}).items()},
        **options,
    )
    return mine, theirs


@pytest.mark.parametrize("case", CASES, ids=names)
def test_loss_and_gradient(case: tuple[Any, ...]) -> None:
    seed = CASES.index(case)
    mine, theirs = by_both(padded(seed), case, packed=seed % 2 == 0)
    assert theirs.gradient.any()
    assert_same(mine, theirs)


@pytest.mark.parametrize(
    "mutant",
    [
        {"eps_low": 0.11},
        {"eps_high": 0.16},
        {"dual_clip": None},
        {"beta": 0.31},
        {"kl": "k2"},
        {"kl_ratio_weight": False},
        {"sampler_min": 0.72},
        {"sampler_max": 1.28},
        {"sampler_mode": "mask"},
        {"sampler_level": "sequence"},
        {"ratio_level": "sequence"},
        {"surrogate": "reinforce", "dual_clip": None},
    ],
    ids=str,
)
def test_a_small_difference_is_noticed(mutant: dict[str, Any]) -> None:
    case = ("grpo", "token", 0.3, True, ("token", "truncate"))
    # Of this seed's tokens 4 are clipped above, 7 below and 4 by the dual clip.
    data = padded(4)
    assert_same(*by_both(data, case, packed=True))
    mine, theirs = by_both(data, case, packed=True, mutant=mutant)
    with pytest.raises(AssertionError):
        assert_same(mine, theirs)


@pytest.mark.parametrize("loss", LOSSES)
def test_without_dual_clip_and_on_policy(loss: str) -> None:
    level = "sequence" if loss == "luspo" else "token"
    for on_policy in (False, True):
        data = padded(7)
        case = (loss, level, 0.04, False, None)
        mine, theirs = by_both(data, case, packed=False, dual_clip=False, on_policy=on_policy)
        assert_same(mine, theirs)


@pytest.mark.parametrize("loss", ["cispo", "dapo", "vespo"])
def test_tokens_of_the_whole_step_and_two_ranks(loss: str) -> None:
    case = (loss, "token", 0.3, False, None)
    mine, theirs = by_both(padded(8), case, packed=True, total_tokens=146, world_size=2)
    assert_same(mine, theirs)


@pytest.mark.parametrize(
    ("loss", "numbers"),
    [
        ("sapo", {"sapo_tau_pos": 2.5, "sapo_tau_neg": 0.5}),
        (
            "vespo",
            {
                "vespo_k_pos": 1.0,
                "vespo_lambda_pos": 0.5,
                "vespo_k_neg": 4.0,
                "vespo_lambda_neg": 1.5,
            },
        ),
    ],
)
def test_other_temperatures(loss: str, numbers: dict[str, float]) -> None:
    mine, theirs = by_both(
        padded(9), (loss, "token", 0.0, False, None), packed=True, numbers=numbers
    )
    assert_same(mine, theirs)


def test_metrics() -> None:
    data = padded(10, empty=False)
    case = ("bnpo", "token", 0.3, False, None)
    mine, theirs = by_both(data, case, packed=False, dual_clip=False)
    for our_name, trl_name in {
        "kl": "kl",
        "entropy": "entropy",
        "clip_low": "clip_ratio/low_mean",
        "clip_high": "clip_ratio/high_mean",
    }.items():
        assert mine.metrics[our_name] == pytest.approx(theirs.metrics[trl_name], rel=1e-6)
        assert mine.metrics[our_name] > 0


def test_entropy_bonus() -> None:
    # TRL's bonus is a mean over tokens whatever the loss; here it takes the scale of the loss.
    data = padded(13)
    spec = PolicyLoss(entropy_coef=0.1)
    mine = ours(data, spec, "bnpo", packed=False)
    assert_same(mine, trl(data, "bnpo", "token", entropy_coef=0.1))
    without = trl(data, "bnpo", "token")
    assert float(mine.loss) != pytest.approx(float(without.loss), rel=1e-3)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_masks_by_entropy_and_by_sequence(share: float) -> None:
    data, spec = padded(14), PolicyLoss(beta=0.3)
    weight = off_policy_weight(
        data.logps, data.old, data.advantages, threshold=0.05, mask=data.mask
    )
    assert 0 in weight[data.mask]
    weight = weight * top_entropy_weight(data.entropy, share, data.mask)
    mine = ours(data, spec, "bnpo", packed=False, token_weight=weight)
    masks = {"top_entropy_quantile": share, "off_policy_mask_threshold": 0.05}
    options = {"beta": 0.3, "use_bias_correction_kl": False}
    assert_same(mine, trl(data, "bnpo", "token", **options, **masks))
    with pytest.raises(AssertionError):
        assert_same(mine, trl(data, "bnpo", "token", **options))


FAILING = [("bnpo", "token"), ("bnpo", "sequence"), ("sapo", "token"), ("dapo", "token")]


def one_token_at(log_ratio: float, advantage: float) -> Padded:
    """Six one-token sequences in fp32, the first of which has left its old policy behind."""
    data = padded(11, dtype=torch.float32, empty=False)
    mask = torch.zeros_like(data.mask)
    mask[:, 0] = True
    old, advantages = data.old.clone(), data.advantages.clone()
    old[0, 0] = data.logps[0, 0] - log_ratio
    advantages[0] = advantage
    return data.changed(old=old, mask=mask, advantages=advantages)


@pytest.mark.parametrize(("loss", "level"), FAILING)
@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_trl_loses_the_gradient_where_the_ratio_overflows(
    loss: str, level: str, advantage: float
) -> None:
    # exp(95) is infinite in fp32: 0 · inf in the backward of the clip, or already in the loss.
    data = one_token_at(95.0, advantage)
    case = (loss, level, 0.0, False, None)
    mine, theirs = by_both(data, case, packed=True, dual_clip=False)
    assert theirs.gradient[0, 0].isnan()

    assert mine.loss.isfinite() and mine.gradient.isfinite().all()
    # Clipped, saturated or without advantage: the token has no say. The others keep theirs.
    assert mine.gradient[0, 0] == 0
    exact = data.changed(**{k: v.double() for k, v in vars(data).items() if k != "mask"})
    truth = by_both(exact, case, packed=True, dual_clip=False)[1]
    torch.testing.assert_close(mine.gradient.double(), truth.gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("loss", "level"),
    [("grpo", "token"), ("grpo", "sequence"), ("cispo", "token"), ("vespo", "token")],
)
def test_trl_lets_padding_into_the_loss(loss: str, level: str) -> None:
    data = padded(12)
    case = (loss, level, 0.3, False, None)
    clean, _ = by_both(data, case, packed=False)
    mine, theirs = by_both(data.masked_fill(torch.nan), case, packed=False)
    assert theirs.loss.isnan()
    assert torch.equal(mine.loss, clean.loss) and torch.equal(mine.gradient, clean.gradient)


@pytest.mark.parametrize("loss", [*LOSSES[:4], "sapo", "cispo"])
def test_advantages_of_tokens(loss: str) -> None:
    data = padded(14)
    generator = torch.Generator().manual_seed(14)
    data = data.changed(advantages=torch.randn(data.mask.shape, generator=generator).double())
    for packed in (False, True):
        mine, theirs = by_both(data, (loss, "token", 0.3, False, None), packed=packed)
        assert_same(mine, theirs)
