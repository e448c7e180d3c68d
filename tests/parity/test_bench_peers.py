"""The peers of bench/peers compute the loss that they are timed on."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.batch import Sizes, draw_head, draw_layout, draw_logits
from bench.peers import PEERS, Peer, clip_loss, of, provider
from rrgkern import token_logps
from tests.parity.padded import peer

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# QuACK runs on a GPU alone: bench/rival_shapes.py compares it with eager there.
for package in {p.package for p in PEERS} - {"quack"}:
    peer(package)
interpreter = peer("triton.runtime.interpreter")

CPU = torch.device("cpu")
SIZES = Sizes(groups=2, members=2, length=8, width=128, vocabulary=41)
FP32 = {"rtol": 1e-3, "atol": 1e-5}
ON_CPU = [p.name for p in of("head") if p.device is None]


def test_all_of_them_are_installed() -> None:
    reasons = {p.name: p.why_not(CPU) for p in PEERS}
    assert {name for name, why in reasons.items() if why} == {
        p.name for p in PEERS if p.device == "cuda"
    }
    assert set(filter(None, reasons.values())) == {"cuda only"}


@pytest.fixture
def _cuda_in_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's host code asks for CUDA tensors; its Triton kernels then run in the interpreter.

    Triton 3.6's interpreter refuses to loop to a number that it holds as an array of one.
    """
    patch_tensors = interpreter._patch_lang_tensor

    def with_loops(tensor: Any, scope: Any) -> None:
        patch_tensors(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda x: int(x.handle.data.reshape(-1)[0]))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_loops)
    monkeypatch.setattr(torch.cuda.nvtx, "range", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))


@pytest.mark.usefixtures("_cuda_in_name_only")
def test_verls_head() -> None:
    same_as_eager("verl-head", "domain")


@pytest.mark.parametrize("kind", ["dense", "domain"])
@pytest.mark.parametrize("name", ON_CPU)
def test_head(name: str, kind: str) -> None:
    same_as_eager(name, kind)


def same_as_eager(name: str, kind: str) -> None:
    """Loss and gradients of a peer that starts from hidden states."""
    drawn = draw_head(SIZES, kind, 1, device="cpu", dtype=torch.float32, frozen=False)
    batch, leaves = drawn.batch, (drawn.hidden, drawn.weight)
    arguments = batch.advantages, batch.old, batch.mask
    logps = (drawn.hidden @ drawn.weight.T).log_softmax(-1)
    logps = logps.gather(-1, batch.targets[..., None])[..., 0]
    wanted = clip_loss(logps, *arguments)
    found = provider(name)(*leaves, batch.targets, *arguments)
    torch.testing.assert_close(found, wanted, **FP32)
    for a, b in zip(grads(found, *leaves), grads(wanted, *leaves), strict=True):
        assert b.any()
        torch.testing.assert_close(a, b, **FP32)


@pytest.mark.parametrize("name", [p.name for p in of("states") if p.device is None])
def test_states(name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(7, 16, generator=generator).requires_grad_()
    weight = torch.randn(41, 16, generator=generator).requires_grad_()
    targets = torch.randint(0, 41, (7,), generator=generator)
    coef = torch.randn(7, generator=generator)
    wanted = (hidden @ weight.T).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    found = provider(name)(hidden, weight, targets)
    torch.testing.assert_close(found, wanted, **FP32)
    gradients = [grads((coef * logps).sum(), hidden, weight) for logps in (found, wanted)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, **FP32)
        assert b.any()


@pytest.mark.usefixtures("_cuda_in_name_only")
def test_verls_entropies() -> None:
    with_entropies("verl-entropies")


@pytest.mark.parametrize("name", [p.name for p in of("entropies") if p.device is None])
def test_entropies(name: str) -> None:
    with_entropies(name)


def with_entropies(name: str) -> None:
    """Log-probabilities, entropies and gradients of a peer that starts from hidden states."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(7, 128, generator=generator).requires_grad_()
    weight = torch.randn(41, 128, generator=generator).mul(0.1).requires_grad_()
    targets = torch.randint(0, 41, (7,), generator=generator)
    coef = torch.randn(2, 7, generator=generator)
    log_p = (hidden @ weight.T).log_softmax(-1)
    wanted = log_p.gather(-1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)
    found = provider(name)(hidden, weight, targets)
    gradients = []
    for logps, entropies in (found, wanted):
        gradients.append(grads((coef[0] * logps + coef[1] * entropies).sum(), hidden, weight))
    for a, b in zip((*found, *gradients[0]), (*wanted, *gradients[1]), strict=True):
        torch.testing.assert_close(a, b, **FP32)
        assert b.any()


@pytest.mark.parametrize("name", [p.name for p in of("logits")])
def test_logits(name: str) -> None:
    values, batch = draw_logits(SIZES, "domain", 2, device="cpu", dtype=torch.float32)
    arguments = batch.advantages, batch.old, batch.mask
    logps = values.log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    wanted = clip_loss(logps, *arguments)
    (gradient,) = grads(wanted, values)
    found = provider(name)(values, batch.targets, *arguments)
    torch.testing.assert_close(found, wanted, **FP32)
    torch.testing.assert_close(grads(found, values)[0], gradient, **FP32)
    assert gradient.any()


@pytest.mark.parametrize("name", [p.name for p in of("rows")])
def test_rows(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(6, 41, generator=generator).requires_grad_()
    targets = torch.randint(0, 41, (6,), generator=generator)
    wanted = token_logps(values, targets, temperature=0.9, entropy=True)
    logps, entropy = provider(name)(values, targets, temperature=0.9, entropy=True)
    torch.testing.assert_close(logps, wanted.logps, **FP32)
    torch.testing.assert_close(entropy, wanted.entropy, **FP32)
    coef = torch.randn(2, 6, generator=generator)
    found = grads((coef[0] * logps + coef[1] * entropy).sum(), values)[0]
    truth = grads((coef[0] * wanted.logps + coef[1] * wanted.entropy).sum(), values)[0]
    torch.testing.assert_close(found, truth, **FP32)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("name", [p.name for p in of("logps")])
def test_logps(name: str, level: str) -> None:
    batch = draw_layout(SIZES, "domain", 4)
    generator = torch.Generator().manual_seed(4)
    logps = -torch.rand(batch.mask.shape, generator=generator)
    old, ref = logps + batch.old, logps + 0.1 * torch.randn(logps.shape, generator=generator)
    options = {"level": level, "eps_low": 0.05, "eps_high": 0.06, "beta": 0.3}

    def by(other: Peer) -> tuple[Tensor, Tensor]:
        leaf = logps.clone().requires_grad_()
        loss = other(leaf, old, ref, batch.advantages, batch.mask, **options)
        return loss.detach(), grads(loss, leaf)[0]

    # TRL's is held against this library's by test_trl_grpo.
    for a, b in zip(by(provider(name)), by(provider("trl-loss")), strict=True):
        torch.testing.assert_close(a, b, **FP32)
        assert b.any()


def grads(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)
