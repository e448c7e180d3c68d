"""Run on each of two ranks for `test_commands.py`: its own engine against its own policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks, sharding
from rrgpolicy.rollout import (
    RolloutEngine,
    SamplingRequest,
    TransformersEngine,
    VllmEngine,
    sampling,
)
from tests.rrgpolicy.model.common import prompt, tiny_policy

LENGTH = 256


def request(policy: Policy, names: Sequence[str]) -> SamplingRequest:
    prompts = [prompt(policy, name, views) for views, name in enumerate(names)]
    return SamplingRequest(
        prompts, group=2, max_new_tokens=24, seeds=[[5, 6]] * len(prompts), greedy=True
    )


def sampled(engine: RolloutEngine, policy: Policy, step: int) -> list[list[list[int]]]:
    """Rank 0 asks twice, rank 1 once and for other prompts."""
    batches = [["s", "ss"], ["sss"]] if ranks.rank() == 0 else [["ssss", "s"]]
    found = []
    with sampling(engine, policy, step) as whole:
        for names in batches:
            for group in engine.generate(whole, request(policy, names)):
                found.append([rollout.ids.tolist() for rollout in group])
    return found


def trained(policy: Policy) -> None:
    """An optimiser step, as it changes what each rank has of the weights."""
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "mlp" in name or "embed_tokens" in name:
                weight.mul_(-1.5)


def main(words: list[str]) -> int:
    policy = tiny_policy(freeze_vision=True)
    with ranks.opened("fsdp2", 120.0, cuda=False):
        engine = VllmEngine(policy, Path(words[0]), max_model_len=LENGTH, memory=0.05)
        sharding.setup("fsdp2", policy)
        told: dict[str, Any] = {"theirs": [], "ours": [], "pushes": []}
        real = engine._llm.collective_rpc

        def counted(method: str, **options: Any) -> Any:
            told["pushes"] += [method] if method.startswith("take_") else []
            return real(method, **options)

        engine._llm.collective_rpc = counted
        for step in (0, 1):
            told["theirs"].append(sampled(engine, policy, step))
            told["ours"].append(sampled(TransformersEngine(), policy, step))
            told["theirs"].append(sampled(engine, policy, step))
            told["ours"].append(told["ours"][-1])
            trained(policy)
        told["backend"] = (
            engine._llm.llm_engine.vllm_config.parallel_config.distributed_executor_backend
        )
        told["world"] = torch.distributed.get_world_size()
        engine.close()
        again = VllmEngine(policy, Path(words[0]), max_model_len=LENGTH, memory=0.05)
        told["theirs"].append(sampled(again, policy, 2))
        told["ours"].append(sampled(TransformersEngine(), policy, 2))
        again.close()
        told["after"] = ranks.gather(ranks.rank())
        Path(f"{ranks.rank()}.json").write_text(json.dumps(told))
        ranks.close()
    return 0
