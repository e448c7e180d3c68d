"""The tiled kernel against fp64: dtypes, options, tile borders, and logits hard to sum."""

from __future__ import annotations

import pytest
import torch

from rrgkern import linear_token_logps
from rrgkern.logps import triton_tile
from rrgkern.logps.from_hidden import CSRC_TILES, TORCH_TILES
from rrgkern.logps.head import (
    BackwardRows,
    Head,
    NeedsGrad,
    Tiling,
    accumulate,
    tiled_backward,
    tiled_forward,
)
from rrgkern.logps.online_softmax import Coefficients
from tests.products import first_of, more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_hidden_oracle import check, check_tile, ours, problem
from tests.skips import no_case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.6, "softcap": 4.0}])
def test_dtypes_and_options(kernel, dtype, bias, options):
    if kernel == "triton" and (dtype.itemsize == 2 or bool(options) != bias):
        no_case("to the kernels a tile is fp32 or fp64: two dtypes, with all options and none")
    given = problem(11, 16, 301, dtype, bias, **options)
    check(ours(given), given)


@pytest.mark.parametrize(
    ("rows", "vocabulary"),
    first_of([(9, 1), (9, 1025), (9, 2), (9, 1024), (1, 9000), (1, 32001)], 2),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vocabularies(kernel, rows, vocabulary, dtype):
    if vocabulary == 32001 and dtype == torch.float32:
        no_case("32001 columns take long in the interpreter: once")
    given = problem(rows, 8, vocabulary, dtype, temperature=0.8)
    check(ours(given), given)


def test_the_vocabulary_of_qwen(torch_kernel):
    given = problem(5, 8, 151936, torch.bfloat16)
    check(ours(given), given)


@pytest.mark.parametrize("offset", [80.0, *more(-120.0)])
def test_an_offset_common_to_all_logits(kernel, offset):
    given = problem(8, 16, 500, bias=True)
    given = given._replace(bias=given.bias + offset)
    check(ours(given), given)


@pytest.mark.parametrize("margin", [40.0, *more(20.0)])
def test_collapsed_softmax_keeps_its_digits(kernel, margin):
    given = problem(8, 16, 500)
    # The target's row of the weight lies along the hidden state: its logit leads by `margin`.
    hidden = torch.nn.functional.normalize(given.hidden, dim=1)
    targets = torch.arange(8, device=hidden.device)
    weight = given.weight * 0.1
    weight[targets] = hidden * margin
    given = given._replace(hidden=hidden, weight=weight, targets=targets)
    outcome = ours(given)
    z = hidden.double() @ weight.double().T
    others = z.scatter(1, targets[:, None], -torch.inf).logsumexp(1)
    truth = -torch.log1p(torch.exp(others - z.gather(1, targets[:, None])[:, 0]))
    torch.testing.assert_close(outcome.logps.double(), truth, rtol=2e-5, atol=0)
    check(outcome, given)


@pytest.mark.parametrize("dtype", [torch.float64, *more(torch.float32, torch.bfloat16)])
@pytest.mark.parametrize("tiling", [Tiling(64, 64), Tiling(128, 128 * 3), Tiling(1000, 10**6)])
@pytest.mark.parametrize(
    "kernels", [TORCH_TILES, CSRC_TILES, triton_tile.TILES], ids=["torch", "csrc", "triton"]
)
def test_tile_borders_do_not_matter(kernels, tiling, dtype):
    if kernels is triton_tile.TILES and (dtype != torch.float64 or tiling.elements == 64):
        no_case("tile by tile in the interpreter: the other tilings show it")
    given = problem(11, 16, 700, dtype, bias=True, temperature=0.7, softcap=5.0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    head = Head(given.weight, given.bias, given.temperature, given.softcap, operands=wide)
    whole = Tiling(columns=700, elements=700 * 11)
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {}
    results = []
    for tiles in (kernels._replace(tiling=tiling), kernels._replace(tiling=whole)):
        stats = tiled_forward(given.hidden, given.targets, head, True, tiles)
        coefficients = Coefficients(given.coef, given.coef_entropy)
        rows = BackwardRows(given.hidden, given.targets, stats, coefficients)
        gradients = tiled_backward(rows, head, NeedsGrad(True, True, True), tiles)
        results.append((stats.logps, stats.entropy, *gradients))
    for split, together in zip(*results, strict=True):
        torch.testing.assert_close(split, together, **tolerance)


def test_a_tile_of_several_blocks_and_a_tail():
    check_tile()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("first", [True, False])
def test_a_slice_in_16_bits_is_summed_in_fp32_and_rounded_once(monkeypatch, dtype, first):
    matmul, addmm = torch.backends.cuda.matmul, torch.addmm

    def allowed() -> tuple[bool, bool]:
        bf16, fp16 = (
            "allow_bf16_reduced_precision_reduction",
            "allow_fp16_reduced_precision_reduction",
        )
        return getattr(matmul, bf16), getattr(matmul, fp16)

    def watched(*arguments, **options):
        inside.append(allowed())
        return addmm(*arguments, **options)

    inside, before = [], allowed()
    monkeypatch.setattr(torch, "addmm", watched)
    dz, h = torch.randn(40, 700).to(dtype), torch.randn(700, 24).to(dtype)
    total = torch.randn(40, 24).to(dtype)
    truth = dz.double() @ h.double() + (0 if first else total.double())
    accumulate(total, dz, h, first=first)
    assert inside == [(False, False)] and allowed() == before
    # Half a unit in the last place, and what 700 sums in fp32 may add.
    atol = 700 * 2**-24 * float(truth.abs().max())
    torch.testing.assert_close(
        total.double(), truth, rtol=torch.finfo(dtype).eps / 2 * 1.01, atol=atol
    )


# From hidden states a row's bits are its own among as many rows, whatever the others hold.
ROWS, WIDTH, VOCABULARY = 12, 32, 301


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_keeps_its_bits_among_as_many_rows(kernel, dtype) -> None:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

    weight, hidden = normal(VOCABULARY, WIDTH), normal(ROWS, WIDTH)
    targets = torch.randint(VOCABULARY, (ROWS,), generator=generator).to(DEVICE)
    together = linear_token_logps(hidden, weight, targets, entropy=True)
    for row in (0, 5, ROWS - 1):
        for others in (30 * normal(ROWS, WIDTH), torch.zeros(ROWS, WIDTH, device=DEVICE).to(dtype)):
            others[row] = hidden[row]
            among = torch.zeros_like(targets)
            among[row] = targets[row]
            padded = linear_token_logps(others, weight, among, entropy=True)
            for one, wanted in zip(padded, together, strict=True):
                assert torch.equal(one[row], wanted[row])
