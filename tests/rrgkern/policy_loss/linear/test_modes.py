"""Every mode against fp64, by both kernels; all of them agree with each other and with eager."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss
from tests.products import first_of
from tests.rrgkern.policy_loss.linear.cases import LENGTHS, check, ours, problem
from tests.skips import no_case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

# (variant, what is given, options)
VARIANTS = {
    "ppo": (PolicyLoss(beta=0.05), "old ref mask token_weight on_policy", {}),
    "on-policy": (PolicyLoss(), "mask", {"temperature": 1.0}),
    "capped, biased": (
        PolicyLoss(surrogate="reinforce"),
        "token_weight",
        {"bias": True, "softcap": 3.0, "temperature": 0.6},
    ),
    "cispo, sampler": (PolicyLoss(surrogate="cispo"), "old sampler mask", {"bias": True}),
    "entropy": (
        PolicyLoss(surrogate="sapo", entropy_coef=0.03),
        "old mask",
        {"bias": True, "softcap": 4.0},
    ),
    "gspo": (PolicyLoss(ratio_level="sequence", beta=0.02), "old ref mask on_policy", {}),
    "sequence sampler": (
        PolicyLoss(sampler_level="sequence", sampler_mode="mask", sampler_max=2.0),
        "sampler",
        {"softcap": 5.0},
    ),
}
# All of the first slice of columns, and some of the second.
BANNED = 150
# Of the rest `make products` has all modes.
COMMON = ("ppo", "entropy", "gspo")
TIED = ("gspo", "sequence sampler")
MODES = [
    (name, mode)
    for name in VARIANTS
    for mode in ("frozen_head", "grad_in_forward", "recompute")
    if not (name in TIED and mode == "grad_in_forward")
    and not (name == "entropy" and mode == "frozen_head")
]


def case(name: str, dtype: torch.dtype):
    spec, given, options = VARIANTS[name]
    return problem(spec, given=given, dtype=dtype, **options).to(dtype)


@pytest.mark.parametrize(
    ("name", "mode"), first_of(sorted(MODES, key=lambda case: case[0] not in COMMON), 7)
)
def test_modes_in_fp64(kernel, name, mode):
    given, frozen = case(name, torch.float64), mode == "frozen_head"
    check(ours(given, mode, frozen=frozen, upstream=0.3), given, frozen=frozen, upstream=0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["frozen_head", "grad_in_forward", "recompute"])
@pytest.mark.parametrize("name", ["ppo", "capped, biased"])
def test_modes_in_training_dtypes(kernel, name, mode, dtype):
    if kernel == "triton" and (dtype.itemsize == 2 or name == "ppo"):
        no_case("to the kernels a tile is fp32 either way, and its loss a coefficient")
    if dtype == torch.float16 and mode == "grad_in_forward":
        no_case("refused: test_rule.py")
    given, frozen = case(name, dtype), mode == "frozen_head"
    check(ours(given, mode, frozen=frozen, upstream=0.3), given, frozen=frozen, upstream=0.3)


@pytest.mark.parametrize("mode", ["frozen_head", "grad_in_forward", "recompute"])
@pytest.mark.parametrize("vocabulary", [1, 2, 64, 129])
def test_vocabularies_and_unaligned_widths(torch_kernel, vocabulary, mode):
    frozen = mode == "frozen_head"
    given = problem(
        PolicyLoss(beta=0.05), vocabulary=vocabulary, width=13, given="old ref mask", bias=True
    )
    check(ours(given, mode, frozen=frozen), given, frozen=frozen)


@pytest.mark.parametrize("mode", ["frozen_head", "grad_in_forward"])
def test_a_softmax_that_has_collapsed(kernel, mode):
    if kernel == "triton" and mode == "grad_in_forward":
        no_case("tests/rrgkern/logps has it for these kernels")
    # Margins of 20 and 40 nats: 1 - p is 0 in fp32, the gradient is not.
    given = problem(PolicyLoss(surrogate="reinforce"), given="", temperature=1.0)
    hidden = torch.nn.functional.normalize(given.hidden, dim=1)
    weight = given.weight * 0.1
    targets = torch.arange(len(hidden), device=hidden.device)
    margins = torch.linspace(20, 40, len(hidden), dtype=torch.float64, device=hidden.device)
    weight[targets] = hidden * margins[:, None]
    given = given._replace(
        hidden=hidden.float().double(), weight=weight.float().double(), targets=targets
    )
    frozen = mode == "frozen_head"
    actual = ours(given.to(torch.float32), mode, frozen=frozen)
    exact = ours(given, mode, frozen=frozen)
    # The last sequence has no advantage.
    assert exact.hidden[: -LENGTHS[-1]].any(1).all()
    torch.testing.assert_close(actual.hidden.double(), exact.hidden, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("mode", ["grad_in_forward", "recompute"])
def test_minus_infinity_in_the_bias_is_a_probability_of_zero(kernel, mode):
    given = problem(PolicyLoss(entropy_coef=0.1), given="old", bias=True)
    banned = torch.arange(BANNED, device=given.bias.device)
    given = given._replace(
        bias=given.bias.index_fill(0, banned, -torch.inf), targets=given.targets.clamp(min=BANNED)
    )
    actual = ours(given, mode)
    assert all(part.isfinite().all() for part in actual if part is not None)
    assert not actual.weight[banned].any() and not actual.bias[banned].any()
