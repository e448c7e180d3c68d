"""An adapter sent to vLLM as an adapter, and merged: the same tokens in fp32, the gap in bf16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgtrain.errors import UserError
from rrgtrain.policy.lora import add_lora
from rrgtrain.policy.policy import Policy
from rrgtrain.rollout import SamplingRequest, VllmEngine, generate, sampling
from rrgtrain.schema import LoraSettings
from tests.rrgtrain.policy.common import tiny_policy
from tests.vllm.test_engines import LENGTH, STEPS, prompts_of, recomputed, seeds_for, tokens


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


def started(policy: Policy, work: Path, **options: Any) -> Iterator[VllmEngine]:
    made = VllmEngine(policy, work, max_model_len=LENGTH, memory=0.1, **options)
    yield made
    made.close()


def test_greedy_tokens_follow_the_adapter(tmp_path: Path) -> None:
    """Merged they are looked at in `test_engines.py`."""
    policy = adapted(torch.float32)
    asked = SamplingRequest(
        prompts_of(policy), group=2, max_new_tokens=STEPS, seeds=seeds_for(4, 2), greedy=True
    )
    made = started(policy, tmp_path)
    engine, said, digests = next(made), [], set()
    for step in (0, 1):
        with sampling(engine, policy, step):
            theirs = engine.generate(policy, asked)
        assert tokens(theirs) == tokens(generate(policy, asked))
        said.append(tokens(theirs))
        assert engine._pushed is not None
        digests.add(engine._pushed.digest)
        assert engine._pushed.held != (None,), "what it computes the adapter with is seen"
        grow(policy)
    assert said[0] != said[1] and len(digests) == 2
    # an adapter that something else has changed
    model = engine._llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    stacks = [m.lora_b_stacked for m in model.modules() if hasattr(m, "lora_b_stacked")]
    stacks[0][0].mul_(2)
    with pytest.raises(UserError, match="have changed while it sampled"):
        engine.generate(policy, asked)
    list(made)


def test_the_gap_in_bf16_as_an_adapter_and_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = {}
    for adapter in (True, False):
        policy = adapted(torch.bfloat16)
        made = started(policy, tmp_path, adapter=adapter)
        engine, prompts = next(made), prompts_of(policy)
        asked = SamplingRequest(prompts, group=8, max_new_tokens=STEPS, seeds=seeds_for(4, 8))
        with sampling(engine, policy, 0):
            rollouts = engine.generate(policy, asked)
        seen = torch.cat([r.logps for g in rollouts for r in g])
        gaps[adapter] = float((seen - recomputed(policy, prompts, rollouts, 1.0)).abs().mean())
        list(made)
    with capsys.disabled():
        print(f"\nmean gap in bf16: as an adapter {gaps[True]:.4f}, merged {gaps[False]:.4f} nats")
    assert all(0 < gap < 0.1 for gap in gaps.values())
