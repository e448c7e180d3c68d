"""The register of peers, without any of them installed; tests/parity runs them."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from bench import peers
from bench.batch import Sizes, draw_layout
from rrgkern import PolicyLoss, loss_scale, policy_loss

CPU = torch.device("cpu")


def test_names_are_unique_and_found():
    names = [peer.name for peer in peers.PEERS]
    assert len(set(names)) == len(names)
    assert peers.provider("trl-head").path == "head"
    for path in ("head", "logits", "logps", "states", "entropies", "rows", "mean", "losses"):
        assert {peer.path for peer in peers.of(path)} == {path}
    with pytest.raises(ValueError, match="no peer 'trl'; wanted one of trl-head, "):
        peers.provider("trl")
    with pytest.raises(ValueError, match="no peer starts from 'hidden'; wanted head, "):
        peers.of("hidden")


def test_what_is_missing_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reasons = {peer.name: peer.why_not(CPU) for peer in peers.PEERS}
    assert reasons["cce-exact"] == "cuda only"
    assert reasons["trl-head"] == ("trl is not installed: see tests/parity/requirements.txt")
    cuda = torch.device("cuda")
    assert peers.provider("cce-exact").why_not(cuda).startswith("cut-cross-entropy is not")
    assert peers.provider("quack-ce").why_not(cuda) == (
        "quack-kernels is not installed: pip install 'quack-kernels[cu13]', too large for .whl/"
    )


def test_quack_is_called_as_its_release_is_written(monkeypatch):
    """Modules of 0.6.5's names and parameters stand in: the wheel needs CUDA to be imported."""

    def cross_entropy(
        x,
        target,
        lse_partial=None,
        weight=None,
        ignore_index=-100,
        reduction="mean",
        inplace_backward=False,
    ):
        return F.cross_entropy(x.float(), target, reduction=reduction)

    def chunked_linear_cross_entropy(
        x,
        weight,
        target,
        chunk_size=4096,
        ignore_index=-100,
        reduction="mean",
        tuned=True,
        use_scaled_exp=None,
    ):
        return F.cross_entropy(x @ weight.T, target, reduction=reduction)

    for function in (cross_entropy, chunked_linear_cross_entropy):
        name = function.__name__.removeprefix("chunked_")
        module = types.ModuleType(f"quack.{name}")
        setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, f"quack.{name}", module)
    monkeypatch.setitem(sys.modules, "quack", types.ModuleType("quack"))
    monkeypatch.delitem(sys.modules, "bench.peers.quack", raising=False)
    generator = torch.Generator().manual_seed(1)
    hidden, weight = (torch.randn(n, 4, generator=generator) for n in (5, 7))
    targets = torch.randint(0, 7, (5,), generator=generator)
    losses = peers.provider("quack-losses")(hidden @ weight.T, targets)
    wanted = -(hidden @ weight.T).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    torch.testing.assert_close(losses, wanted)
    torch.testing.assert_close(peers.provider("quack-ce")(hidden, weight, targets), wanted.mean())
    monkeypatch.delitem(sys.modules, "bench.peers.quack")


def test_a_hopper_needs_one_package_more(monkeypatch):
    present = {"liger_kernel"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name in present else None
    )
    peer, cuda = peers.provider("liger-scaled-ce"), torch.device("cuda")
    for capability, reason in (
        ((9, 0), "liger_kernel needs cutlass on this GPU"),
        ((8, 0), None),
    ):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda d, c=capability: c)
        assert peer.why_not(cuda) == reason
    assert peer.why_not(CPU) is None


def test_the_loss_behind_a_head_is_the_one_of_this_library():
    batch = draw_layout(Sizes(groups=5, members=3, length=20, width=0, vocabulary=9), "domain", 3)
    generator = torch.Generator().manual_seed(3)
    leaf = (-torch.rand(batch.mask.shape, generator=generator)).requires_grad_()
    old = (leaf + 3 * batch.old).detach()
    loss = peers.clip_loss(leaf, batch.advantages, old, batch.mask)
    (theirs,) = torch.autograd.grad(loss, leaf)

    offsets = torch.arange(0, batch.mask.numel() + 1, batch.mask.shape[1])
    mask = batch.mask.flatten()
    out = policy_loss(
        leaf.flatten(),
        batch.advantages,
        offsets,
        scale=loss_scale("grpo", offsets, mask=mask),
        old=old.flatten(),
        mask=mask,
        spec=PolicyLoss(eps_low=peers.EPSILON, eps_high=peers.EPSILON),
    )
    (ours,) = torch.autograd.grad(out.loss, leaf)
    assert out.metrics["clip_low"] > 0 and out.metrics["clip_high"] > 0
    torch.testing.assert_close(loss, out.loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-8)
