"""The loss by hand, against the plain loop, and its gradient by finite differences and autograd."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rrgkern import PreferencePairs, oracle_pairs, preference_advantages, preference_loss
from rrgkern.preference_loss.op import preference_loss_fwd
from rrgkern.preference_loss.reference import METRICS
from tests.rrgkern.device import DEVICE
from tests.rrgkern.preference_loss.cases import Batch, batch, loop_loss, reference

Serve = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]
SERVES = [preference_loss_fwd, reference]
CASES = [
    batch(seed, masked=seed % 2 == 0, length_normalized=seed % 3 != 0).changed(tau=tau)
    for seed, tau in enumerate((0.1, 0.3, 1.0, 2.5, 0.1, 0.3))
]


def test_two_sequences_by_hand() -> None:
    # R = 0.5 * (0.2 + 0.4) / 2 = 0.15 and 0.5 * -0.3 = -0.15: a margin of 0.3.
    data = Batch(
        logps=torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64, device=DEVICE),
        ref=torch.tensor([-1.2, -2.4, -2.7], dtype=torch.float64, device=DEVICE),
        offsets=torch.tensor([0, 2, 3], device=DEVICE),
        positive=torch.tensor([0], device=DEVICE),
        negative=torch.tensor([1], device=DEVICE),
        weight=torch.tensor([2.0], dtype=torch.float64, device=DEVICE),
        tau=0.5,
    )
    sigma = 1 / (1 + math.exp(0.3))
    for serve in SERVES:
        loss, coef, advantages, metrics = serve(*data.arguments())
        assert float(loss) == pytest.approx(2 * math.log1p(math.exp(-0.3)))
        assert advantages.tolist() == pytest.approx([sigma, -sigma])
        assert coef.tolist() == pytest.approx([-sigma / 2, -sigma / 2, sigma])
        assert metrics.tolist() == pytest.approx([0.3, 1.0, 0.15, -0.15, 1.0])


def check(serve: Serve) -> None:
    """Raise AssertionError unless values, metrics and slopes are those of the plain loop."""
    for data in CASES:
        loss, coef, advantages, metrics = serve(*data.arguments())
        expected, _, by_name = loop_loss(data)
        assert float(loss) == pytest.approx(expected, rel=1e-12)
        assert dict(zip(METRICS, metrics.tolist(), strict=True)) == pytest.approx(by_name)
        slopes = finite_differences(data)
        assert coef.tolist() == pytest.approx(slopes, rel=1e-6, abs=1e-9)
        kept = torch.ones_like(coef, dtype=torch.bool) if data.mask is None else data.mask
        for i, advantage in enumerate(advantages.tolist()):
            tokens = slice(int(data.offsets[i]), int(data.offsets[i + 1]))
            length = max(int(kept[tokens].sum()), 1) if data.length_normalized else 1
            for t in torch.arange(len(coef))[tokens][kept[tokens].cpu()].tolist():
                assert slopes[t] == pytest.approx(-advantage / length, rel=1e-6, abs=1e-9)


def finite_differences(data: Batch) -> list[float]:
    logps, step = data.logps.tolist(), 1e-6
    slopes = []
    for t in range(len(logps)):
        ends = []
        for move in (step, -step):
            moved = list(logps)
            moved[t] += move
            ends.append(loop_loss(data, moved)[0])
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return slopes


@pytest.mark.parametrize("serve", SERVES)
def test_against_the_plain_loop(serve: Serve) -> None:
    check(serve)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [30.0, 1e4, 1e8])
@pytest.mark.parametrize("serve", SERVES)
def test_large_margins(serve: Serve, size: float, dtype: torch.dtype) -> None:
    # One token each; the first pair is right by `size`, the second wrong by as much.
    data = batch(lengths=(1, 1), n_pairs=2, masked=False).changed(
        logps=torch.tensor([0.0, -size], dtype=torch.float64, device=DEVICE),
        ref=torch.zeros(2, dtype=torch.float64, device=DEVICE),
        positive=torch.tensor([0, 1], device=DEVICE),
        negative=torch.tensor([1, 0], device=DEVICE),
        weight=torch.ones(2, dtype=torch.float64, device=DEVICE),
        tau=1.0,
    )
    loss, coef, _, _ = serve(*data.arguments(dtype))
    assert float(loss) == pytest.approx(size + 2 * math.log1p(math.exp(-size)), rel=1e-7)
    assert coef.tolist() == pytest.approx([1.0, -1.0])

    data = data.changed(weight=torch.tensor([1.0, 0.0], dtype=torch.float64, device=DEVICE))
    loss, coef, _, metrics = serve(*data.arguments(dtype))
    tail = math.exp(-size)  # relative precision where 1 - σ would be 0
    assert float(loss) == pytest.approx(tail, rel=1e-6)
    assert coef.tolist() == pytest.approx([-tail, tail], rel=1e-6)
    assert metrics.tolist()[:2] == pytest.approx([size, 1.0])


# An oracle against its group, and what the public functions refuse.
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
    assert oracle_pairs(is_oracle, group_offsets).weight.sum() == pytest.approx(3 / 6)


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
        ({"group_offsets": torch.tensor([0, 2])}, ValueError, "from 0 to 2; .* sequences, 3"),
        ({"prompt_weight": torch.ones(2)}, ValueError, r"wanted \[B\] = \(1,\)"),
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


BAD: list[tuple[dict[str, object], type[Exception], str]] = [
    ({"logps": torch.zeros(3, 1)}, ValueError, r"logps has shape \(3, 1\)"),
    ({"ref": torch.zeros(2)}, ValueError, r"ref has shape \(2,\) and logps \(3,\)"),
    ({"mask": torch.ones(3)}, TypeError, "mask is torch.float32"),
    ({"offsets": torch.zeros(0).long()}, ValueError, r"wanted \[S\+1\]"),
    ({"offsets": torch.tensor([0, 2, 4])}, ValueError, "from 0 to 4; .* tokens, 3"),
    ({"offsets": torch.tensor([0, 2, 1, 3])}, ValueError, "goes down after position 1"),
    ({"offsets": torch.tensor([0, 3]).int()}, TypeError, "offsets is torch.int32"),
    ({"tau": 0.0}, ValueError, "tau is 0.0"),
    ({"pairs": pairs(negative=(1, 1))}, ValueError, r"pairs.negative has shape \(2,\)"),
    ({"pairs": pairs(weight=(1,))}, TypeError, "pairs.weight is torch.int64"),
    ({"pairs": pairs(positive=(2,))}, ValueError, "pair 0 is of sequences 2 and 1; .* 0 to 1"),
    ({"pairs": pairs(weight=(-1.0,))}, ValueError, "weight of pair 0 is -1.0"),
]


@pytest.mark.parametrize("function", [preference_loss, preference_advantages])
@pytest.mark.parametrize(("change", "error", "words"), BAD)
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
