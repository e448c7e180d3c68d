"""An adapter sent to vLLM as an adapter, and merged: the same tokens in fp32, the gap in bf16."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.rollout import SamplingRequest, VllmEngine, VllmServerEngine, generate, sampling
from rrgtrain.errors import UserError
from rrgtrain.schema import LoraSettings
from tests.rrgpolicy.model.common import tiny_policy
from tests.vllm.server import LENGTH, Server
from tests.vllm.test_engines import STEPS, prompts_of, recomputed, seeds_for, tokens


def adapted(dtype: torch.dtype) -> Policy:
    policy = tiny_policy(dtype=dtype)
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), 0)
    grow(policy)
    return policy


def grow(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.05 * torch.randn(weight.shape, generator=generator))


def greedy(policy: Policy) -> SamplingRequest:
    return SamplingRequest(
        prompts_of(policy), group=2, max_new_tokens=STEPS, seeds=seeds_for(4, 2), greedy=True
    )


def followed(engine: VllmEngine | VllmServerEngine, policy: Policy) -> None:
    """The trainer's tokens in two steps, of other weights each."""
    asked, said, digests = greedy(policy), [], set()
    for step in (0, 1):
        with sampling(engine, policy, step):
            theirs = engine.generate(policy, asked)
        assert tokens(theirs) == tokens(generate(policy, asked))
        said.append(tokens(theirs))
        assert engine._pushed is not None
        digests.add(engine._pushed.digest)
        assert engine._pushed.held != (None,), "what it computes the adapter with is seen"
        if step == 0:
            grow(policy)
    assert said[0] != said[1] and len(digests) == 2


def test_greedy_tokens_follow_the_adapter(tmp_path: Path) -> None:
    """Merged they are looked at in `test_engines.py`."""
    policy = adapted(torch.float32)
    engine = VllmEngine(policy, tmp_path, max_model_len=LENGTH, memory=0.1)
    followed(engine, policy)
    # an adapter that something else has changed
    model = engine._llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    stacks = [m.lora_b_stacked for m in model.modules() if hasattr(m, "lora_b_stacked")]
    stacks[0][0].mul_(2)
    with pytest.raises(UserError, match="have changed while it sampled"):
        engine.generate(policy, greedy(policy))
    engine.close()


def test_a_server_follows_the_adapter(server: Server, tmp_path: Path) -> None:
    policy = adapted(torch.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*takes no adapter")
        engine = VllmServerEngine(server.url, tmp_path / "a", wait=240.0)
        followed(engine, policy)
    assert engine._sender is not None and engine._sender.adapter
    # the next run has the same adapter, and a rank more than the server has room for
    again = VllmServerEngine(server.url, tmp_path / "b", wait=240.0)
    with sampling(again, policy, 0):
        assert tokens(again.generate(policy, greedy(policy))) == tokens(
            generate(policy, greedy(policy))
        )
    wide = tiny_policy(dtype=torch.float32)
    add_lora(wide, LoraSettings(rank=12), 0)
    with pytest.raises(UserError, match="does not load the adapter .*rank 12.*--max-lora-rank"):
        VllmServerEngine(server.url, tmp_path / "c", wait=240.0).update(wide, 0)


def test_the_gap_in_bf16_as_an_adapter_and_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = adapted(torch.bfloat16)
    engine = VllmEngine(policy, tmp_path, max_model_len=LENGTH, memory=0.1)
    prompts, gaps = prompts_of(policy), {}
    asked = SamplingRequest(prompts, group=8, max_new_tokens=STEPS, seeds=seeds_for(4, 8))
    sender = type(engine._sender)
    for adapter in (True, False):
        # requests that name no adapter go past those layers
        engine._lora, engine._sender, engine._pushed = adapter, sender(adapter=adapter), None
        with sampling(engine, policy, int(adapter)):
            rollouts = engine.generate(policy, asked)
        seen = torch.cat([r.logps for g in rollouts for r in g])
        gaps[adapter] = float((seen - recomputed(policy, prompts, rollouts, 1.0)).abs().mean())
    engine.close()
    with capsys.disabled():
        print(f"\nmean gap in bf16: as an adapter {gaps[True]:.4f}, merged {gaps[False]:.4f} nats")
    assert all(0 < gap < 0.1 for gap in gaps.values())
