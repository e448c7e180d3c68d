"""The weight of a token under each aggregation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rrgkern import loss_scale
from rrgkern.policy_loss import AGGREGATIONS

OFFSETS = torch.tensor([0, 4, 4, 5])  # lengths 4, 0, 1
OPTIONS: dict[str, dict[str, Any]] = {
    "dapo": {"total_tokens": 50, "world_size": 2},
    "dr_grpo": {"max_length": 10},
}


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("grpo", [1 / 12, 0.0, 1 / 3]),
        ("bnpo", [1 / 5, 0.0, 1 / 5]),
        ("dapo", [2 / 50, 0.0, 2 / 50]),
        ("dr_grpo", [1 / 30, 0.0, 1 / 30]),
        ("sum", [1 / 3, 0.0, 1 / 3]),
    ],
)
def test_by_hand(aggregation: str, expected: list[float]) -> None:
    scale = loss_scale(aggregation, OFFSETS, **OPTIONS.get(aggregation, {}))
    assert scale.dtype == torch.float32
    torch.testing.assert_close(scale, torch.tensor(expected), rtol=1e-7, atol=0)


def test_a_mask_counts_only_scored_tokens() -> None:
    mask = torch.tensor([True, False, True, False, True])
    grpo = loss_scale("grpo", OFFSETS, mask=mask)
    torch.testing.assert_close(grpo, torch.tensor([1 / 6, 0.0, 1 / 3]))
    bnpo = loss_scale("bnpo", OFFSETS, mask=mask)
    torch.testing.assert_close(bnpo, torch.tensor([1 / 3, 0.0, 1 / 3]))
    nothing = loss_scale("grpo", OFFSETS, mask=torch.zeros(5, dtype=torch.bool))
    assert nothing.eq(0).all()


def test_total_tokens_may_stay_on_the_device() -> None:
    as_tensor = loss_scale("dapo", OFFSETS, total_tokens=torch.tensor(50), world_size=2)
    assert torch.equal(as_tensor, loss_scale("dapo", OFFSETS, **OPTIONS["dapo"]))


def test_a_sum_or_mean_over_ranks_may_have_an_axis_or_a_fraction() -> None:
    for total in (torch.tensor([5]), torch.tensor(5.0) / 2):
        scale = loss_scale("dapo", OFFSETS, total_tokens=total)
        assert scale[0] == torch.tensor(1 / float(total))


@pytest.mark.parametrize("options", [{"max_length": 0}, {"total_tokens": 5, "world_size": 0}])
def test_counts_are_checked_under_compile_too(options: dict[str, int]) -> None:
    compiled = torch.compile(loss_scale, backend="eager")
    with pytest.raises(Exception, match="wanted a whole number of at least 1"):
        compiled("dr_grpo" if "max_length" in options else "dapo", OFFSETS, **options)


def test_no_token_on_any_rank_is_a_scale_of_zero() -> None:
    none = torch.tensor(0)
    assert loss_scale("dapo", OFFSETS, total_tokens=none, world_size=2).eq(0).all()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_without_tokens_or_sequences(aggregation: str) -> None:
    options = OPTIONS.get(aggregation, {})
    assert loss_scale(aggregation, torch.tensor([0]), **options).shape == (0,)
    assert loss_scale(aggregation, torch.tensor([0, 0, 0]), **options).eq(0).all()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("mean", OFFSETS), {}, ValueError, "aggregation is 'mean'; choose one of 'grpo'"),
        (("grpo", OFFSETS.int()), {}, TypeError, "offsets is torch.int32"),
        (("grpo", OFFSETS[:0]), {}, ValueError, r"offsets has shape \(0,\)"),
        (("dr_grpo", OFFSETS), {}, ValueError, "'dr_grpo' needs max_length"),
        (("dapo", OFFSETS), {}, ValueError, "'dapo' needs total_tokens"),
        (("dr_grpo", OFFSETS), {"max_length": 0}, ValueError, "max_length is 0"),
        (("grpo", OFFSETS), {"max_length": 5}, ValueError, "only 'dr_grpo' uses it"),
        (("bnpo", OFFSETS), {"total_tokens": 5}, ValueError, "only 'dapo' uses it"),
        (("grpo", OFFSETS), {"world_size": 2}, ValueError, "world_size is 2"),
        *(
            ((owner, OFFSETS), {**OPTIONS.get(owner, {}), name: count}, error, f"{name} ")
            for owner, name in (
                ("dr_grpo", "max_length"),
                ("dapo", "total_tokens"),
                ("dapo", "world_size"),
            )
            for count, error in (
                *((x, ValueError) for x in (0, -1, -1.5, 1.5, math.nan, math.inf)),
                *((x, TypeError) for x in ("5", True, [5])),
                *((torch.tensor(x), ValueError) for x in (-1, math.nan, [5, 5], True)),
            )
        ),
        (("grpo", OFFSETS), {"mask": torch.ones(5)}, TypeError, "mask is torch.float32"),
        (
            ("grpo", OFFSETS),
            {"mask": torch.ones(5, 1).bool()},
            ValueError,
            r"mask has shape \(5, 1\)",
        ),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        loss_scale(*arguments, **options)
    assert "\n" not in str(caught.value)
