"""vLLM with families other than Qwen2.5-VL: pictures in, the tower pushed under the hub's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.rollout import RolloutEngine, SamplingRequest, VllmEngine, generate, named_as_loaded
from rrgtrain.errors import UserError
from rrgtrain.schema import LoraSettings
from tests.rrgpolicy.model.common import grow, prompt
from tests.rrgpolicy.model.families import WINDOW
from tests.rrgpolicy.model.sighted import PUBLISHED, checkpoint, sighted
from tests.vllm.server import LENGTH
from tests.vllm.test_engines import recomputed, seeds_for, tokens

STEPS = 16
# Heads of 32 values: vLLM on a CPU has no smaller ones.
WIDE: dict[str, Any] = {"head_dim": 32}
SIZES: dict[str, dict[str, Any]] = {
    "qwen3": WIDE,
    "qwen3_vl": {
        **WIDE,
        "rope_parameters": {
            **{"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True},
            "mrope_section": [4, 6, 6],
        },
    },
    "internvl": WIDE,
    "gemma3": WIDE,
    "llava_onevision": {**WIDE, "num_attention_heads": 2, "num_key_value_heads": 1},
    "cohere2": WIDE,
    "gpt_oss": {
        **WIDE,
        # vLLM takes YaRN alone here
        "rope_parameters": {
            **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0, "truncate": False},
            **{"original_max_position_embeddings": 128, "beta_fast": 32.0, "beta_slow": 1.0},
        },
    },
    "qwen3_5": {
        **WIDE,
        **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
        "rope_parameters": {
            **{"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True},
            **{"partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2]},
        },
    },
}


def policy_of(name: str, dtype: torch.dtype = torch.float32, **sizes: Any) -> Policy:
    made = sighted if name in PUBLISHED else checkpoint
    policy = load_policy(made(name, **{**SIZES[name], **sizes}), dtype=dtype)
    policy.keeps_pictures = policy.sees_images
    policy.sharing = "none"
    return policy


def prompts_of(policy: Policy) -> list[EncodedPrompt]:
    views = (0, 0, 0)
    if policy.sees_images:
        views = (1, 0, 1) if policy.family.images.together else (1, 0, 2)
    return [prompt(policy, "s" * (b + 1), count) for b, count in enumerate(views)]


def request_of(prompts: list[EncodedPrompt], group: int, **options: Any) -> SamplingRequest:
    seeds = seeds_for(len(prompts), group)
    return SamplingRequest(prompts, group=group, max_new_tokens=STEPS, seeds=seeds, **options)


def agrees(engine: RolloutEngine, policy: Policy) -> list[list[list[int]]]:
    """Its greedy tokens and sampled log-probs are the trainer's, and no image's id is sampled."""
    prompts = prompts_of(policy)
    greedy = request_of(prompts, 2, greedy=True)
    theirs = tokens(engine.generate(policy, greedy))
    assert theirs == tokens(generate(policy, greedy))
    rollouts = engine.generate(policy, request_of(prompts, 2, temperature=0.7))
    seen = torch.cat([r.logps for g in rollouts for r in g])
    torch.testing.assert_close(
        seen, recomputed(policy, prompts, rollouts, 0.7), rtol=1e-3, atol=2e-3
    )
    assert not {i for g in tokens(rollouts) for m in g for i in m} & {*policy.never_sampled}
    return theirs


def gaps(engine: RolloutEngine, policy: Policy) -> torch.Tensor:
    """How far the sampled log-probs are from the trainer's, in nats, token by token."""
    engine.update(policy)
    prompts = prompts_of(policy)
    rollouts = engine.generate(policy, request_of(prompts, 4, temperature=0.7))
    seen = torch.cat([r.logps for g in rollouts for r in g])
    return (seen - recomputed(policy, prompts, rollouts, 0.7)).abs()


@contextmanager
def engine_for(policy: Policy, work: Path) -> Iterator[VllmEngine]:
    made = VllmEngine(policy, work, max_model_len=LENGTH, memory=0.1)
    try:
        yield made
    finally:
        made.close()


def trained(policy: Policy, *words: str) -> None:
    """Change the weights whose names have one of the words."""
    with torch.no_grad():
        for name, weight in policy.backbone.named_parameters():
            if any(word in name for word in words) and weight.dim() > 1:
                weight.mul_(-1.5)


def followed(engine: RolloutEngine, policy: Policy) -> None:
    """It takes what trains of decoder and tower, and sees the pictures."""
    said = []
    for step, words in enumerate(((), ("mlp",), ("visual", "vision_tower"))):
        if words and (step == 1 or policy.sees_images):
            trained(policy, *words)
        engine.update(policy, step)
        said.append(agrees(engine, policy))
    assert said[0] != said[1]
    if policy.sees_images:
        assert said[1][0] != said[2][0], "the tower's new weights are seen"
        assert said[1][1] == said[2][1], "where there is no image they do not matter"


@pytest.fixture(scope="module", params=["qwen3_vl", "internvl"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RolloutEngine, str]]:
    """An engine in this process."""
    name, policy = request.param, policy_of(request.param)
    engine = VllmEngine(policy, tmp_path_factory.mktemp(name), max_model_len=LENGTH, memory=0.1)
    yield engine, name
    engine.close()


def test_tokens_and_log_probs_follow_all_weights(both: tuple[VllmEngine, str]) -> None:
    engine, name = both
    policy = policy_of(name)
    followed(engine, policy)
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), 0)
    grow(policy, 0.1, only="lora_B")
    engine.update(policy)
    agrees(engine, policy)  # merged


def test_a_dropped_picture_and_a_wrong_name_are_refused(
    both: tuple[VllmEngine, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, name = both
    policy = policy_of(name)
    engine.update(policy)
    prompts = prompts_of(policy)
    less = [replace(prompts[2], pictures=prompts[2].pictures[:1])]
    with pytest.raises(
        UserError, match="vLLM read the prompt as .* tokens, the trainer as .* part"
    ):
        engine.generate(policy, request_of(less, 1))
    with pytest.raises(ValueError, match="has images and no pictures"):
        engine.generate(policy, request_of([replace(prompts[2], pictures=())], 1))

    def without_a_norm(policy: Policy, tensors: dict[str, Any]) -> dict[str, Any]:
        return {
            n: t
            for n, t in named_as_loaded(policy, tensors).items()
            if "layers.1.input_layern" not in n
        }

    monkeypatch.setattr("rrgpolicy.rollout.weights.named_as_loaded", without_a_norm)
    engine._sender.whole = True
    with pytest.raises(
        UserError, match=r"no tensor came for 1 of its weights, such as \S*layers.1"
    ):
        engine.update(policy)


def test_a_window_of_cohere2_is_a_token_wider_in_vllm(tmp_path: Path) -> None:
    """`CohereAttention` of models/commandr.py adds 1 to it, transformers' mask does not.

    With one less in its configuration vLLM agrees.
    """
    narrow, policy = policy_of("cohere2", sliding_window=WINDOW - 1), policy_of("cohere2")
    with engine_for(narrow, tmp_path) as engine:
        engine.update(policy)
        agrees(engine, policy)
        assert gaps(engine, narrow).mean() > 0.01


def test_gpt_oss_is_refused_since_a_reload_loses_its_experts(tmp_path: Path) -> None:
    """`_load_weights_other` of models/gpt_oss.py copies sinks and experts past their loaders."""
    policy = policy_of("gpt_oss")
    lost = r"reload has lost what came for 20 of its weights, such as \S*0.attn.sinks"
    with engine_for(policy, tmp_path) as engine, pytest.raises(UserError, match=lost):
        engine.update(policy)


def test_qwen3_5_follows_in_bf16(tmp_path: Path) -> None:
    """Of which alone vLLM has its linear attention on a CPU, with heads of 64 or 128 values."""
    policy = policy_of("qwen3_5", torch.bfloat16)
    with engine_for(policy, tmp_path) as engine:
        for words in ((), ("mlp",)):
            trained(policy, *words)
            assert 0 < gaps(engine, policy).mean() < 0.1


def test_llava_onevision_is_served_with_one_image_a_study(tmp_path: Path) -> None:
    policy = policy_of("llava_onevision")
    two = [prompt(policy, "s", 2)]
    with engine_for(policy, tmp_path) as engine:
        followed(engine, policy)
        with pytest.raises(UserError, match="the 2 images of s change each other's tokens"):
            engine.generate(policy, request_of(two, 1))
