"""The loops of examples/ train, and what they wrap computes the loss of plain forwards."""

from __future__ import annotations

import runpy

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from rrgkern import loss_scale, policy_loss, token_logps
from tests.examples.contracts import EXAMPLES, record_gradients


@pytest.fixture
def _on_path(monkeypatch) -> None:
    """As `python examples/FILE.py` has it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.usefixtures("_on_path")
def test_the_accelerate_loop_updates_its_policy(monkeypatch) -> None:
    gradients = record_gradients(monkeypatch)
    with torch.random.fork_rng():
        means = runpy.run_path(str(EXAMPLES / "accelerate_loop.py"))["main"](2)
    assert len(means) == len(gradients) == 2
    assert all(0.0 < mean < 1.0 for mean in means) and min(gradients) > 0.0


@pytest.mark.usefixtures("_on_path")
def test_the_wrapped_loss_has_the_gradients_of_plain_forwards(tmp_path) -> None:
    parts = runpy.run_path(str(EXAMPLES / "tiny_grpo.py"))
    prompts = [torch.tensor([2, 3]), torch.tensor([4])]
    reports = [[torch.tensor([5, 6, 1]), torch.tensor([7])], [torch.tensor([8, 1])]]
    advantages = torch.tensor([1.0, -0.5, 2.0])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = parts["Loss"]()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        wrapped = DistributedDataParallel(module)
        loss = wrapped(prompts, reports, advantages)
        loss.backward()
    finally:
        torch.distributed.destroy_process_group()
    shared = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    logps = []
    for prompt, group in zip(prompts, reports, strict=True):
        for report in group:
            logits = module.model(torch.cat([prompt, report])[None]).logits[0]
            logps.append(token_logps(logits[len(prompt) - 1 : -1], report).logps)
    offsets = torch.tensor([0, 3, 4, 6])
    scale = loss_scale("dr_grpo", offsets, max_length=parts["LONGEST"])
    plain = policy_loss(torch.cat(logps), advantages, offsets, scale=scale, spec=parts["SPEC"]).loss
    plain.backward()
    torch.testing.assert_close(loss, plain)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(shared[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
