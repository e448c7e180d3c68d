"""Groups sampled in process carry the log-probs of training, whatever the family."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import transformers

from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.vision_cache import VisionCache
from rrgpolicy.rollout import SamplingRequest, TransformersEngine
from tests.rrgpolicy.model.families import IMAGE, SORTS, backbone, build, forwards, prompt

# One of each kind: deepstack, windows with images, states, temperature by place, soft cap, scale.
NAMES = ("qwen3_vl", "gemma3", "qwen3_5", "lfm2_vl", "llama4", "internvl", "gemma2", "granite")


def policy_of(name: str, way: str) -> Policy:
    plain = backbone(build(name, torch.float32))
    text = plain.text_config
    if name == "gemma2":
        text.final_logit_softcapping = 3.0
    return Policy(
        model=plain.model,
        device=plain.device,
        pad_id=0,
        sharing=way,
        tokenizer=SimpleNamespace(added_tokens_decoder={}),
        image_processor=None,
        eos_ids=tuple(range(3, 25)),
        end_of_turn=3,
    )


def test_sampled_log_probs_are_those_of_training() -> None:
    transformers.logging.set_verbosity_error()
    failures = []
    for name in filter(forwards, NAMES):
        sort = SORTS[name]
        policy = policy_of(name, sort.ways[0])
        assert (IMAGE in policy.never_sampled) == sort.sees
        for parameter in policy.model.parameters():
            parameter.requires_grad_(False)
        counts = (2, 0) if sort.sees else (0, 0)
        prompts = [prompt(policy, name, n, 20 - 9 * k, k) for k, n in enumerate(counts)]
        seeds = [[1, 2, 3], [4, 5, 6]]
        cache = VisionCache(1 << 20) if sort.sees and policy.family.joins else None
        request = SamplingRequest(
            prompts, group=3, max_new_tokens=12, seeds=seeds, temperature=1.3, vision_cache=cache
        )
        groups = TransformersEngine().generate(policy, request)
        sampled = [rollout for group in groups for rollout in group]
        assert len({len(rollout.ids) for rollout in sampled}) > 1, "no row left the batch early"
        members = [[rollout.ids for rollout in group] for group in groups]
        hidden, batch = hidden_states(policy, prompts, members)
        logps = head_logps(policy, hidden, batch.targets, temperature=1.3)
        far = (torch.cat([rollout.logps for rollout in sampled]) - logps).abs().max()
        if far > 1e-4:
            failures.append(f"{name}: {far:.0e}")
    assert not failures, failures
