"""`torch.set_default_device` moves nothing that an op makes for itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHILD = """
import torch
LOGPS, OFFSETS = -torch.rand(6), torch.tensor([0, 2, 6])
LOGITS, TARGETS, HEAD = torch.randn(6, 5), torch.arange(6) % 5, torch.randn(5, 4)
HIDDEN, ADVANTAGES, SCALE = torch.randn(6, 4), torch.randn(2), torch.ones(2) / 6
PAIR = (torch.tensor([0]), torch.tensor([1]), torch.ones(1))
POSITIVE, PLACES = torch.rand(2, 3, 4) < 0.5, torch.tensor([0, 2, 2])
torch.set_default_device("meta")  # where nothing can be read: elsewhere it would be "cuda"

import rrgkern

def backward(loss, *leaves):
    return loss, *torch.autograd.grad(3 * loss, leaves)

def of_logps(spec):
    leaf = LOGPS.clone().requires_grad_()
    output = rrgkern.policy_loss(leaf, ADVANTAGES, OFFSETS, scale=SCALE, spec=spec)
    return *backward(output.loss, leaf), *output.metrics.values()

def of_hidden(mode):
    hidden, head = HIDDEN.clone().requires_grad_(), HEAD.clone()
    leaves = (hidden,) if mode == "frozen_head" else (hidden, head.requires_grad_())
    output = rrgkern.linear_policy_loss(
        hidden, head, TARGETS, ADVANTAGES, OFFSETS, scale=SCALE, mode=mode
    )
    return backward(output.loss, *leaves)

def of_logits():
    leaf = LOGITS.clone().requires_grad_()
    logps, entropy = rrgkern.token_logps(leaf, TARGETS, entropy=True)
    output = rrgkern.policy_loss_from_logits(leaf, TARGETS, ADVANTAGES, OFFSETS, scale=SCALE)
    return *backward(logps.sum() + entropy.sum(), leaf), *backward(output.loss, leaf)

def of_rooms():
    leaf, rows = LOGPS.clone().requires_grad_(), HIDDEN.clone().requires_grad_()
    loss = rrgkern.preference_loss(
        leaf, 2 * LOGPS, OFFSETS, rrgkern.PreferencePairs(*PAIR)
    ).loss
    return (
        *backward(loss, leaf),
        rrgkern.group_advantages(LOGPS, OFFSETS, std="sample"),
        rrgkern.diagnostic_diversity(POSITIVE),
        *rrgkern.rank_sample(LOGPS, 0.5, seed=1),
        rrgkern.tfidf_weights(TARGETS, OFFSETS, torch.tensor([0, 2], device="cpu")),
        *backward(rrgkern.gather_rows(rows, PLACES).sum(), rows),
    )

def results():
    found = [*of_logits(), *of_rooms()]
    for level in ("token", "sequence"):
        found += of_logps(rrgkern.PolicyLoss(ratio_level=level))
    for mode in ("recompute", "frozen_head", "grad_in_forward"):
        found += of_hidden(mode)
    return found

away = results()
torch.set_default_device(None)
for got, want in zip(away, results(), strict=True):
    assert torch.equal(got, want)
"""


@pytest.mark.gate
def test_the_results_are_those_without_a_default_device() -> None:
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
