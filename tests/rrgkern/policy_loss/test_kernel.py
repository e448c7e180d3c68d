"""Whatever serves the op (here the Triton passes) against the reference in fp64 and fp32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.dispatch import served_by
from rrgkern.policy_loss.op import policy_loss_fwd
from rrgkern.policy_loss.reference import policy_loss_reference
from tests.products import first_of, more
from tests.rrgkern.aot.harness import in_compiling_process
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss import cases

Served = tuple[Tensor, ...]
# 11 and 13 share no factor with the counts of the choices, so every choice keeps coming up.
CASES = cases.sampled_variants(stride=11)
FP32_CASES = cases.sampled_variants(stride=13)
SPREAD = PolicyLoss(beta=0.1, entropy_coef=0.01, kl_ratio_weight=True, dual_clip=1.5)


def test_the_kernel_is_what_is_tested() -> None:
    assert served_by("rrgkern::policy_loss_fwd", "cuda").startswith("triton")
    if DEVICE == "cpu":
        assert served_by("rrgkern::policy_loss_fwd", "cpu").startswith("triton")


@pytest.mark.parametrize(
    ("spec", "data"), first_of(CASES, 12), ids=[cases.name_of(spec) for spec, _ in CASES]
)
def test_fp64_equals_the_reference(spec: PolicyLoss, data: cases.Batch) -> None:
    served = policy_loss_fwd(*data.arguments(spec))
    expected = policy_loss_reference(*data.arguments(spec))
    for got, want in zip(served, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("spec", "data"), first_of(FP32_CASES, 10), ids=[cases.name_of(spec) for spec, _ in FP32_CASES]
)
def test_fp32_is_as_close_to_the_truth_as_eager(spec: PolicyLoss, data: cases.Batch) -> None:
    cases.check_fp32(spec, data, policy_loss_fwd(*data.to(torch.float32).arguments(spec)))


@pytest.mark.parametrize("serve", [policy_loss_fwd])
def test_fp32_over_several_blocks(serve: Callable[..., Served]) -> None:
    lengths = (300, 0, 1, 511, 40, 700, 3)
    for seed, level in enumerate(("token", "sequence", "sequence_token")):
        spec = PolicyLoss(ratio_level=level, beta=0.1, sampler_level="sequence")
        data = cases.batch(seed, lengths=lengths)
        cases.check_fp32(spec, data, serve(*data.to(torch.float32).arguments(spec)))


@pytest.mark.product
def test_two_runs_are_bitwise_equal() -> None:
    data = cases.batch(5, dtype=torch.float32, lengths=(300, 1, 259))
    for level in ("token", "sequence"):
        spec = PolicyLoss(ratio_level=level, beta=0.1, sampler_level="sequence")
        for first, second in zip(
            *(policy_loss_fwd(*data.arguments(spec)) for _ in range(2)), strict=True
        ):
            assert torch.equal(first, second)


@pytest.mark.parametrize("surrogate", ["clip", "vespo"])
@pytest.mark.parametrize("serve", [policy_loss_fwd, policy_loss_reference])
@pytest.mark.parametrize("poison", [torch.nan, *more(torch.inf, -torch.inf, 1e30)])
def test_nothing_at_a_masked_position_changes_a_bit(serve, poison: float, surrogate: str) -> None:
    spec = PolicyLoss(surrogate=surrogate, beta=0.1, entropy_coef=0.1, kl_ratio_weight=True)
    data = cases.batch(2, dtype=torch.float32, per_token=True)
    fields = ["logps", "advantages", "scale", "old", "ref", "sampler", "token_weight", "entropy"]
    poisoned = data.changed(
        **{name: torch.where(data.mask, getattr(data, name), poison) for name in fields}
    )
    for clean, dirty in zip(
        serve(*data.arguments(spec)), serve(*poisoned.arguments(spec)), strict=True
    ):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()
    assert serve(*poisoned.arguments(spec))[1][~data.mask].eq(0).all()


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0), (1,), (4, 0, 0), (257,)])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("serve", [policy_loss_fwd])
def test_odd_lengths(lengths: tuple[int, ...], level: str, serve: Callable[..., Served]) -> None:
    spec = PolicyLoss(ratio_level=level, beta=0.1, entropy_coef=0.1)
    data = cases.batch(4, lengths=lengths)
    for got, want in zip(
        serve(*data.arguments(spec)),
        policy_loss_reference(*data.arguments(spec)),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("serve", [policy_loss_fwd, policy_loss_reference])
def test_all_masked(serve) -> None:
    data = cases.batch(4).changed(
        mask=torch.zeros(sum(cases.LENGTHS), dtype=torch.bool, device=DEVICE)
    )
    loss, coef, coef_entropy, metrics = serve(*data.arguments(SPREAD))
    assert loss == 0 and coef.eq(0).all() and coef_entropy.eq(0).all() and metrics.eq(0).all()


@pytest.mark.parametrize(
    "spec",
    [
        PolicyLoss(ratio_level="sequence"),
        *more(SPREAD, PolicyLoss(surrogate="vespo", beta=0.1)),
    ],
)
@pytest.mark.parametrize("given", [True, *more(False)])
def test_opcheck(spec: PolicyLoss, given: bool) -> None:
    data = cases.batch(1, dtype=torch.float32)
    if not given:
        data = cases.Batch(data.logps, data.advantages, data.offsets, data.scale, ref=data.ref)
        spec = PolicyLoss(surrogate=spec.surrogate, ratio_level=spec.ratio_level, beta=spec.beta)
    arguments = list(data.arguments(spec))
    arguments[0] = arguments[0].clone().requires_grad_()
    if given:
        arguments[1] = arguments[1].clone().requires_grad_()
    torch.library.opcheck(policy_loss_fwd, tuple(arguments))


COUNT = """
from dataclasses import replace
from rrgkern import PolicyLoss
from tests.rrgkern.aot.harness import distinct_kernels
from tests.rrgkern.policy_loss.aot_cases import run, variant

def tokens(n, s):
    return lambda: run(variant("clip", "sequence"), tokens=n, sequences=s)

def numbers(i):
    spec = replace(
        variant("clip", "sequence"), beta=0.01 * i, eps_high=0.1 + 0.01 * i, entropy_coef=0.001 * i,
        sampler_max=1.0 + i, dual_clip=2.0 + i,
    )
    return lambda: run(spec)

lengths = [1, 2, *(16 * n for n in range(1, 26)), *(16 * n + 5 for n in range(1, 26))]
print(distinct_kernels([tokens(n, min(n, 2 + n // 9)) for n in lengths]))
print(distinct_kernels([numbers(i) for i in range(1, 26)]))
print(distinct_kernels([numbers(1), lambda: run(variant("clip", "token"))]))
"""


@pytest.mark.slow
def test_lengths_and_numbers_share_one_compilation() -> None:
    pytest.importorskip("triton")
    # Three passes each, whatever the number of tokens. The finish does not depend on the variant.
    assert in_compiling_process("-c", COUNT).split() == ["3", "3", "4"]


# Wrong losses that the yardstick must refuse, each planted in turn.
SPEC = PolicyLoss(
    ratio_level="sequence",
    beta=0.3,
    kl_ratio_weight=True,
    entropy_coef=0.1,
    sampler_min=0.6,
    sampler_max=1.5,
)


def serve(data: cases.Batch, spec: PolicyLoss = SPEC) -> Served:
    return policy_loss_fwd(*data.to(torch.float32).arguments(spec))


def scaled(served: Served, loss: float, coef: float, entropy: float) -> Served:
    return served[0] * loss, served[1] * coef, served[2] * entropy, served[3]


def with_gradient_of(other: Callable[[cases.Batch], Served]) -> Callable[[cases.Batch], Served]:
    """Right loss and metrics, the gradient of a wrong loss."""

    def mutant(data: cases.Batch) -> Served:
        right = serve(data)
        return right[0], other(data)[1], right[2], right[3]

    return mutant


MUTANTS: dict[str, Callable[[cases.Batch], Served]] = {
    "zero gradient": lambda d: scaled(serve(d), 1, 0, 1),
    "half gradient": lambda d: scaled(serve(d), 1, 0.5, 1),
    "flipped gradient": lambda d: scaled(serve(d), 1, -1, 1),
    "half loss": lambda d: scaled(serve(d), 0.5, 1, 1),
    "zero entropy gradient": lambda d: scaled(serve(d), 1, 1, 0),
    "flipped entropy gradient": lambda d: scaled(serve(d), 1, 1, -1),
    "no token weight": lambda d: serve(d.changed(token_weight=None)),
    "no scale": lambda d: serve(d.changed(scale=torch.ones_like(d.scale))),
    "on-policy flag ignored": lambda d: serve(d.changed(on_policy=None)),
    "mask ignored": lambda d: serve(d.changed(mask=None)),
    "old ignored": lambda d: serve(d.changed(old=None)),
    "sampler ignored": lambda d: serve(d.changed(sampler=None)),
    "truncated instead of masked": lambda d: serve(d, replace(SPEC, sampler_mode="mask")),
    "correction of the sequence": lambda d: serve(d, replace(SPEC, sampler_level="sequence")),
    "no KL": lambda d: serve(d, replace(SPEC, beta=0.0)),
    "another KL": lambda d: serve(d, replace(SPEC, kl="k2")),
    "dual clip": lambda d: serve(d, replace(SPEC, dual_clip=1.25)),
    "another clip": lambda d: serve(d, replace(SPEC, eps_high=0.25)),
    "gradient of the token level": with_gradient_of(
        lambda d: serve(d, replace(SPEC, ratio_level="sequence_token"))
    ),
    "KL weight not differentiated": with_gradient_of(
        lambda d: serve(d, replace(SPEC, kl_ratio_weight=False))
    ),
    "one gradient for all tokens": lambda d: (
        (s := serve(d))[0],
        s[1].mean().expand_as(s[1]),
        *s[2:],
    ),
}


# Short sequences, so that ratios of a sequence too lie on both sides of every clip.
DATA = cases.batch(1, lengths=(1, 2, 3, 1) * 5)


def test_the_right_one_passes() -> None:
    cases.check_fp32(SPEC, DATA, serve(DATA))


@pytest.mark.gate
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_mutant_dies(mutant: Callable[[cases.Batch], Served]) -> None:
    with pytest.raises(AssertionError):
        cases.check_fp32(SPEC, DATA, mutant(DATA))
