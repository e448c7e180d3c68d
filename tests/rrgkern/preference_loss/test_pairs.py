"""An oracle against its group, and what the public functions refuse."""

from __future__ import annotations

import math

import pytest
import torch

from rrgkern import PreferencePairs, oracle_pairs, preference_advantages, preference_loss

YES, NO = True, False


def weighted(pairs: PreferencePairs) -> dict[tuple[int, int], float]:
    listed = zip(*(tensor.tolist() for tensor in pairs), strict=True)
    return {(better, worse): weight for better, worse, weight in listed if weight}


def test_each_oracle_against_its_group() -> None:
    #                         group 0        empty  alone  group 3   none    group 5
    is_oracle = torch.tensor([NO, YES, NO, NO, YES, NO, YES, NO, NO, YES, NO])
    group_offsets = torch.tensor([0, 4, 4, 5, 7, 9, 11])
    pairs = oracle_pairs(is_oracle, group_offsets, prompt_weight=torch.arange(1.0, 7.0))
    assert weighted(pairs) == {
        (1, 0): pytest.approx(1 / 3),
        (1, 2): pytest.approx(1 / 3),
        (1, 3): pytest.approx(1 / 3),
        (6, 5): 4.0,
        (9, 10): 6.0,
    }
    assert len(pairs.weight) == len(is_oracle)
    mean = oracle_pairs(is_oracle, group_offsets)
    assert mean.weight.sum() == pytest.approx(3 / 6)


def test_no_group() -> None:
    pairs = oracle_pairs(torch.zeros(0, dtype=torch.bool), torch.tensor([0]))
    assert [tensor.shape for tensor in pairs] == [(0,)] * 3


def test_the_weight_keeps_its_dtype() -> None:
    arguments = torch.tensor([YES, NO]), torch.tensor([0, 2])
    weight = oracle_pairs(*arguments, prompt_weight=torch.ones(1, dtype=torch.float64)).weight
    assert weight.dtype == torch.float64
    assert oracle_pairs(*arguments).weight.dtype == torch.float32


def test_compiles_into_one_graph() -> None:
    is_oracle, group_offsets = torch.tensor([NO, YES, NO, YES]), torch.tensor([0, 3, 4])
    compiled = torch.compile(oracle_pairs, fullgraph=True, backend="aot_eager")
    for got, want in zip(
        compiled(is_oracle, group_offsets), oracle_pairs(is_oracle, group_offsets), strict=True
    ):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"is_oracle": torch.zeros(2, 2).bool()}, ValueError, r"is_oracle has shape \(2, 2\)"),
        ({"is_oracle": torch.zeros(3)}, TypeError, "is_oracle is torch.float32"),
        ({"group_offsets": torch.tensor(3)}, ValueError, r"wanted \[B\+1\]"),
        ({"group_offsets": torch.tensor([0.0, 3.0])}, TypeError, "group_offsets is torch.float32"),
        ({"group_offsets": torch.tensor([0, 2])}, ValueError, "from 0 to 2; .* sequences, 3"),
        ({"prompt_weight": torch.ones(2)}, ValueError, r"wanted \[B\] = \(1,\)"),
        ({"prompt_weight": torch.ones(1).long()}, TypeError, "prompt_weight is torch.int64"),
        ({"prompt_weight": torch.ones(1, device="meta")}, ValueError, "is on meta"),
        ({"is_oracle": torch.tensor([YES, NO, YES])}, ValueError, "group 0 has 2 oracles"),
    ],
)
def test_pairs_refuse_in_one_line(change, error, words) -> None:
    arguments = {
        "is_oracle": torch.tensor([YES, NO, NO]),
        "group_offsets": torch.tensor([0, 3]),
    } | change
    with pytest.raises(error, match=words) as caught:
        oracle_pairs(**arguments)
    assert "\n" not in str(caught.value)


def pairs(positive=(0,), negative=(1,), weight=(1.0,), dtypes=None) -> PreferencePairs:
    listed = {"positive": positive, "negative": negative, "weight": weight}
    return PreferencePairs(
        *(torch.tensor(v, dtype=(dtypes or {}).get(k)) for k, v in listed.items())
    )


@pytest.mark.parametrize("function", [preference_loss, preference_advantages])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"logps": torch.zeros(3, 1)}, ValueError, r"logps has shape \(3, 1\)"),
        ({"logps": torch.zeros(3).long()}, TypeError, "logps is torch.int64"),
        ({"ref": torch.zeros(3).long()}, TypeError, "ref is torch.int64"),
        ({"ref": torch.zeros(2)}, ValueError, r"ref has shape \(2,\) and logps \(3,\)"),
        ({"ref": torch.zeros(3, device="meta")}, ValueError, "ref is on meta"),
        ({"mask": torch.ones(3)}, TypeError, "mask is torch.float32"),
        ({"mask": torch.ones(4).bool()}, ValueError, r"mask has shape \(4,\)"),
        ({"offsets": torch.zeros(0).long()}, ValueError, r"wanted \[S\+1\]"),
        ({"offsets": torch.zeros(1).long()}, ValueError, "so no sequence"),
        ({"offsets": torch.tensor([0.0, 2.0, 3.0])}, TypeError, "offsets is torch.float32"),
        ({"offsets": torch.tensor([0, 2, 4])}, ValueError, "from 0 to 4; .* tokens, 3"),
        ({"tau": 0.0}, ValueError, "tau is 0.0"),
        ({"tau": math.inf}, ValueError, "tau is inf"),
        ({"pairs": pairs(negative=(1, 1))}, ValueError, r"pairs.negative has shape \(2,\)"),
        ({"pairs": pairs(weight=(1, 1))}, ValueError, r"pairs.weight has shape \(2,\)"),
        ({"pairs": pairs(dtypes={"positive": torch.int32})}, TypeError, "positive is torch.int32"),
        ({"pairs": pairs(weight=(1,))}, TypeError, "pairs.weight is torch.int64"),
        ({"pairs": pairs(positive=(2,))}, ValueError, "pair 0 is of sequences 2 and 1; .* 0 to 1"),
        ({"pairs": pairs(negative=(-1,))}, ValueError, "pair 0 is of sequences 0 and -1"),
        ({"pairs": pairs(weight=(-1.0,))}, ValueError, "weight of pair 0 is -1.0"),
        ({"pairs": pairs(weight=(math.nan,))}, ValueError, "weight of pair 0 is nan"),
    ],
)
def test_losses_refuse_in_one_line(function, change, error, words) -> None:
    arguments = {
        "logps": torch.zeros(3),
        "ref": torch.zeros(3),
        "offsets": torch.tensor([0, 2, 3]),
        "pairs": pairs(),
    } | change
    with pytest.raises(error, match=words) as caught:
        function(**arguments)
    assert "\n" not in str(caught.value)
