"""The margin-based cosine: its rules, its refusals, and kernel == reference bit for bit."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rrgkern import csrc, dispatch, mccs
from rrgkern.mccs.op import mccs_op
from rrgkern.mccs.reference import mccs_reference

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MARGINS = [-0.999, -0.5, 0.0, 0.3, 0.9, 1 / 3]
BLANK, POSITIVE, NEGATIVE, UNCERTAIN = range(4)


def row(*ids: int) -> list[int]:
    return [*ids, *[BLANK] * (14 - len(ids))]


# (pred, truth, margin, reward), computed by hand; norms are those of the marked observations.
RULES = {
    "same finding": (row(POSITIVE), row(POSITIVE), 0.0, 1.0),
    "uncertain counts as positive": (row(UNCERTAIN), row(POSITIVE), 0.0, 1.0),
    "opposite earns nothing": (row(POSITIVE), row(NEGATIVE), 0.0, 0.0),
    "uncertain opposes negative": (row(UNCERTAIN), row(NEGATIVE), 0.0, 0.0),
    "negatives agree": (row(NEGATIVE), row(NEGATIVE), 0.0, 1.0),
    "half of two": (row(POSITIVE, POSITIVE), row(POSITIVE), 0.0, 1 / math.sqrt(2)),
    "one agrees, one opposes": (row(POSITIVE, NEGATIVE), row(POSITIVE, POSITIVE), 0.0, 0.0),
    "one opposes, negative margin": (row(1, 2), row(1, 1), -0.5, 0.5 / 1.5),
    "margin rescales": (row(1, 1), row(1), 0.5, (1 / math.sqrt(2) - 0.5) / 0.5),
    "below the margin": (row(1, 1, 1, 1, 1), row(1), 0.5, 0.0),
    "full opposition at a negative margin": (row(1), row(2), -0.9, 0.0),
    "no finding is left out": ([0] * 13 + [1], [0] * 13 + [1], 0.0, 0.0),
    "no finding does not dilute": ([*row(1)[:13], 1], row(1), 0.0, 1.0),
    "blank prediction": (row(), row(POSITIVE), 0.0, 0.0),
    "blank prediction, negative margin": (row(), row(POSITIVE), -0.9, 0.0),
    "blank truth, negative margin": (row(NEGATIVE), row(), -0.9, 0.0),
    "both blank": (row(), row(), 0.0, 0.0),
    "both blank, negative margin": (row(), row(), -0.9, 0.0),
}


def check_rules(reward_of: Callable[[Tensor, Tensor, float, float], Tensor]) -> None:
    for name, (pred, truth, margin, expected) in RULES.items():
        reward = reward_of(torch.tensor([pred]), torch.tensor([truth]), margin, 0.0)
        assert reward.item() == pytest.approx(expected, abs=1e-6), name


def call(pred: Tensor, truth: Tensor, margin: float, both_blank: float) -> Tensor:
    return mccs(pred, truth, margin=margin, both_blank=both_blank)


@pytest.mark.parametrize("reward_of", [call, mccs_reference], ids=["kernel", "reference"])
def test_rules(reward_of):
    check_rules(reward_of)


def test_both_blank_option():
    ids = torch.tensor([row(), row(POSITIVE), row()])
    truth = torch.tensor([row(), row(), row(POSITIVE)])
    for reward_of in (call, mccs_reference):
        assert reward_of(ids, truth, -0.5, 0.25).tolist() == [0.25, 0.0, 0.0]


def every_statistic() -> tuple[Tensor, Tensor]:
    """Rows with every reachable (norm of pred, norm of truth, dot product)."""
    pred, truth = [], []
    for p, t in itertools.product(range(14), repeat=2):
        for overlap in range(max(0, p + t - 13), min(p, t) + 1):
            for agreeing in range(overlap + 1):
                same, opposed = [POSITIVE] * agreeing, [NEGATIVE] * (overlap - agreeing)
                pred.append(row(*[1] * overlap, *[1] * (p - overlap)))
                truth.append(row(*same, *opposed, *[0] * (p - overlap), *[3] * (t - overlap)))
    return torch.tensor(pred), torch.tensor(truth)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_kernel_equals_reference_bit_for_bit(device, margin, dtype):
    assert dispatch.served_by("rrgkern::mccs", device) == "csrc mccs", "build the extension first"
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, 4, (2, 20_000, 14), generator=generator)
    for pred, truth in (every_statistic(), random):
        wanted = mccs_reference(pred, truth, margin, 1 / 3)
        got = mccs(pred.to(device, dtype), truth.to(device, dtype), margin=margin, both_blank=1 / 3)
        assert got.dtype == torch.float32
        assert torch.equal(got.cpu(), wanted)


def test_against_python_floats():
    pred, truth = every_statistic()
    rewards = mccs(pred, truth, margin=0.3)
    value = {0: 0, 1: 1, 2: -1, 3: 1}
    for p, t, reward in zip(pred.tolist(), truth.tolist(), rewards.tolist(), strict=True):
        z, z_star = [value[i] for i in p[:13]], [value[i] for i in t[:13]]
        norms = (math.hypot(*z) + 1e-8) * (math.hypot(*z_star) + 1e-8)
        ccs = sum(a * b for a, b in zip(z, z_star, strict=True)) / norms
        expected = max((ccs - 0.3) / 0.7, 0.0) if any(z) and any(z_star) else 0.0
        assert reward == pytest.approx(expected, abs=2**-23)


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_and_layouts(device):
    ids = torch.randint(0, 4, (14, 40), generator=torch.Generator().manual_seed(1)).to(device)
    pred, truth = ids.t()[::2], ids.t()[1::2]
    assert not pred.is_contiguous()
    wanted = mccs(pred.contiguous(), truth.contiguous())
    assert torch.equal(mccs(pred, truth), wanted)
    assert torch.equal(mccs(pred.reshape(4, 5, 14), truth.reshape(4, 5, 14)), wanted.reshape(4, 5))
    assert torch.equal(mccs(pred[3], truth[3]), wanted[3])
    assert torch.equal(mccs(pred.char(), truth), wanted)
    assert mccs(pred[:0], truth[:0]).shape == (0,)
    assert torch.equal(mccs(pred, truth), mccs(pred, truth))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((torch.zeros(2, 13), torch.zeros(2, 13)), {}, TypeError, "float32, wanted int8"),
        ((torch.zeros(2, 13).int(), torch.zeros(2, 13).int()), {}, ValueError, r"\[2, 13\]"),
        ((torch.zeros(2, 14).int(), torch.zeros(3, 14).int()), {}, ValueError, r"\[3, 14\]"),
        (None, {"margin": 1.0}, ValueError, "margin is 1.0"),
        (None, {"margin": math.nan}, ValueError, "margin is nan"),
        (None, {"both_blank": 1.5}, ValueError, "both_blank is 1.5"),
    ],
)
def test_refusals(arguments, options, error, message):
    arguments = arguments or (torch.zeros(2, 14).int(), torch.zeros(2, 14).int())
    with pytest.raises(error, match=message):
        mccs(*arguments, **options)


def test_refuses_two_devices():
    ids = torch.zeros(2, 14, dtype=torch.int32)
    with pytest.raises(ValueError, match="pred is on cpu and truth on meta"):
        mccs(ids, ids.to("meta"))


@pytest.mark.parametrize("implementation", ["kernel", "reference"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
@pytest.mark.parametrize("bad", [-1, 4, 100])
@pytest.mark.parametrize("side", ["pred", "truth"])
def test_refuses_unknown_classes(implementation, dtype, bad, side):
    ids = {name: torch.zeros(5, 14, dtype=dtype) for name in ("pred", "truth")}
    ids[side][3, 13] = bad
    function = mccs_op if implementation == "kernel" else mccs_op._init_fn
    with pytest.raises(ValueError, match=rf"{side}\[3, 13\] is {bad}, wanted a class id 0"):
        function(ids["pred"], ids["truth"], 0.0, 0.0)


def test_a_wide_id_is_not_wrapped_into_range():
    pred, truth = torch.zeros(1, 14, dtype=torch.int8), torch.full((1, 14), 256)
    with pytest.raises(ValueError, match="is 256"):
        mccs(pred, truth)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    pred, truth = torch.randint(0, 4, (2, 9, 14), dtype=torch.int8, device=device)
    torch.library.opcheck(mccs_op, (pred, truth, 0.25, 1.0))
    torch.library.opcheck(mccs_op, (pred[:0], truth[:0], 0.25, 1.0))


@pytest.mark.parametrize("device", DEVICES)
def test_compiles_without_a_graph_break(device):
    pred, truth = torch.randint(0, 4, (2, 9, 14), dtype=torch.int8, device=device)

    def reward(pred: Tensor, truth: Tensor) -> Tensor:
        return mccs(pred, truth, margin=0.1) * 2

    compiled = torch.compile(reward, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(pred, truth), reward(pred, truth))
    assert torch.equal(compiled(pred[:4], truth[:4]), reward(pred[:4], truth[:4]))


@pytest.fixture
def fresh_loader(monkeypatch):
    """The loader as if this process had not looked for the extension yet."""
    cached = (csrc.load, csrc.build_info, csrc.why_not)
    monkeypatch.setattr(dispatch, "_announced", set())
    for function in cached:
        function.cache_clear()
    yield monkeypatch
    for function in cached:
        function.cache_clear()


def test_a_broken_extension_is_an_error_not_a_slow_path(fresh_loader, tmp_path):
    broken = tmp_path / "_C.so"
    broken.write_bytes(b"not a library")
    fresh_loader.setattr(csrc, "LIBRARY", broken)
    ids = torch.zeros(1, 14, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"does not load .* rebuild it with"):
        mccs(ids, ids)


@pytest.mark.gpu
def test_cuda_checks_classes_on_request(monkeypatch):
    monkeypatch.setenv("RRGKERN_CHECK", "1")
    pred = torch.zeros(2, 14, dtype=torch.int8, device="cuda")
    truth = pred.clone()
    truth[1, 2] = 7
    with pytest.raises(ValueError, match=r"truth\[1, 2\] is 7"):
        mccs(pred, truth)


@pytest.mark.gpu
@pytest.mark.own_process
@pytest.mark.parametrize("implementation", ["mccs_op", "mccs_op._init_fn"])
def test_cuda_asserts_on_the_device_without_a_request(implementation):
    # In a process of its own: the assertion ends the CUDA context.
    program = (
        "import torch; from rrgkern.mccs.op import mccs_op\n"
        "ids = torch.full((3, 14), 4, device='cuda')\n"
        f"{implementation}(ids, ids, 0.0, 0.0)\n"
        "torch.cuda.synchronize()"
    )
    environment = {name: v for name, v in os.environ.items() if name != "RRGKERN_CHECK"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode != 0
    assert "is outside 0..3" in result.stderr + result.stdout
