"""Rollouts: greedy equals transformers' own, log-probs equal the training forward's, members
depend on their seed alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rrgkern import linear_token_logps
from rrgpolicy.model.forward import hidden_states
from rrgpolicy.model.load import Policy, load_policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.rollout import Rollout, SamplingRequest, generate
from tests.rrgpolicy.model.common import prompt, tiny_directory, tiny_policy

STEPS = 70  # beyond the cache's first chunk of 64 places


def prompts_of(policy: Policy) -> list[EncodedPrompt]:
    """Prompts of unequal length: one picture, none, three, two."""
    return [
        prompt(policy, "s" * (b + 1), views, indication="dyspnea" * b)
        for b, views in enumerate((1, 0, 3, 2))
    ]


def seeds_for(count: int, group: int) -> list[list[int]]:
    return [[1000 * b + m for m in range(group)] for b in range(count)]


def ending_policy(**options: object) -> Policy:
    """A policy that ends its turn now and then: reports of many lengths, rows that leave early."""
    policy = tiny_policy(**options)
    policy.eos_ids = tuple(range(40, 46))
    return policy


def recomputed(
    policy: Policy, prompts: list[EncodedPrompt], rollouts: list[list[Rollout]], temperature: float
) -> torch.Tensor:
    with torch.no_grad():
        hidden, batch = hidden_states(policy, prompts, [[r.ids for r in g] for g in rollouts])
        weight, bias, _ = policy.head()
        return linear_token_logps(
            hidden, weight, batch.targets, bias=bias, temperature=temperature
        ).logps


def test_greedy_equals_transformers() -> None:
    policy = tiny_policy()
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts, group=2, max_new_tokens=STEPS, seeds=seeds_for(4, 2), greedy=True
    )
    ours = generate(policy, request)
    for p, group in zip(prompts, ours, strict=True):
        images = {}
        if p.pixel_values is not None:
            images = {
                "pixel_values": p.pixel_values,
                "image_grid_thw": p.image_grid_thw,
                "mm_token_type_ids": p.mm_token_type_ids[None].int(),
            }
        theirs = policy.backbone.generate(
            input_ids=p.input_ids[None],
            attention_mask=torch.ones_like(p.input_ids[None]),
            do_sample=False,
            max_new_tokens=STEPS,
            **images,
        )[0, len(p.input_ids) :]
        for rollout in group:
            assert torch.equal(rollout.ids, theirs[: len(rollout.ids)])
            assert rollout.finished or len(rollout.ids) == STEPS


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logps_equal_the_training_forward(temperature: float) -> None:
    """In fp64, so that nothing but the rounding of the log-probs themselves is forgiven."""
    policy = ending_policy(dtype=torch.float64)
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts,
        group=6,
        temperature=temperature,
        max_new_tokens=STEPS,
        seeds=seeds_for(4, 6),
    )
    rollouts = generate(policy, request)
    flat = [r for group in rollouts for r in group]
    lengths = {len(r.ids) for r in flat}
    assert len(lengths) > 4, "reports of one length would not exercise rows that leave"
    assert {r.finished for r in flat} == {True, False}
    ours = torch.cat([r.logps for r in flat])
    assert ours.dtype == torch.float32
    with torch.no_grad():
        hidden, batch = hidden_states(policy, prompts, [[r.ids for r in g] for g in rollouts])
        logps = torch.log_softmax(hidden @ policy.head().weight.T / temperature, -1)
    theirs = logps.gather(1, batch.targets[:, None]).squeeze(1).float()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_logps_equal_the_fused_log_probs() -> None:
    policy = load_policy(tiny_directory())
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts, group=3, temperature=0.9, max_new_tokens=40, seeds=seeds_for(4, 3)
    )
    rollouts = generate(policy, request)
    ours = torch.cat([r.logps for group in rollouts for r in group])
    torch.testing.assert_close(ours, recomputed(policy, prompts, rollouts, 0.9), rtol=0, atol=1e-5)


def test_a_report_ends_with_its_end_of_turn() -> None:
    policy = ending_policy()
    request = SamplingRequest(
        prompts_of(policy), group=6, max_new_tokens=STEPS, seeds=seeds_for(4, 6)
    )
    rollouts = generate(policy, request)
    for rollout in (r for group in rollouts for r in group):
        ends = [i for i, t in enumerate(rollout.ids.tolist()) if t in policy.eos_ids]
        assert ends == ([len(rollout.ids) - 1] if rollout.finished else [])
        assert len(rollout.logps) == len(rollout.ids)
        assert rollout.finished or len(rollout.ids) == STEPS
        assert (rollout.logps <= 0).all()


def test_members_depend_on_their_seed_alone() -> None:
    policy = ending_policy()
    prompts, seeds = prompts_of(policy), seeds_for(4, 5)
    request = SamplingRequest(prompts, group=5, max_new_tokens=30, seeds=seeds)
    together = generate(policy, request)
    for b in (0, 3):
        few = SamplingRequest(
            prompts[b : b + 1], group=2, max_new_tokens=40, seeds=[seeds[b][3:1:-1]]
        )
        alone = generate(policy, few)
        for mine, theirs in zip(alone[0], (together[b][3], together[b][2]), strict=True):
            assert torch.equal(mine.ids[:30], theirs.ids)
    again = generate(policy, request)
    other = generate(policy, replace(request, seeds=[[s + 1 for s in g] for g in seeds]))
    for left, right, changed in zip(together[0], again[0], other[0], strict=True):
        assert torch.equal(left.ids, right.ids)
        assert torch.equal(left.logps, right.logps)
        assert not torch.equal(left.ids, changed.ids)


def test_the_policy_is_left_as_it_was() -> None:
    policy = tiny_policy(gradient_checkpointing=True)
    policy.model.train()
    prompts = prompts_of(policy)[:2]
    before = {k: v.clone() for k, v in policy.model.state_dict().items()}
    request = SamplingRequest(prompts, group=2, max_new_tokens=5, seeds=seeds_for(2, 2))
    rollouts = generate(policy, request)
    assert policy.model.training
    assert all(torch.equal(before[k], v) for k, v in policy.model.state_dict().items())
    # The ids serve in a forward that needs gradients.
    hidden, _ = hidden_states(policy, prompts, [[r.ids for r in g] for g in rollouts])
    hidden.sum().backward()


def test_bfloat16_logps_are_those_of_its_hidden_states() -> None:
    policy = tiny_policy(dtype=torch.bfloat16)
    prompts = prompts_of(policy)
    request = SamplingRequest(prompts, group=3, max_new_tokens=20, seeds=seeds_for(4, 3))
    rollouts = generate(policy, request)
    ours = torch.cat([r.logps for g in rollouts for r in g])
    gap = (ours - recomputed(policy, prompts, rollouts, 1.0)).abs()
    # Hidden states carry 8 bits: two orders of summation differ by some of the last.
    assert gap.mean() < 0.02


def test_bad_requests_are_told() -> None:
    policy = tiny_policy()
    prompts = prompts_of(policy)[:1]
    good = {"group": 2, "max_new_tokens": 3, "seeds": [[1, 2]]}
    assert generate(policy, SamplingRequest([], **(good | {"seeds": []}))) == []
    for change, message in (
        ({"seeds": [[1]]}, r"seeds for 1 prompts with \[1\] members: give 1 lists of 2"),
        ({"seeds": []}, "seeds for 0 prompts"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"group": 0}, "group=0"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
    ):
        with pytest.raises(ValueError, match=message):
            SamplingRequest(prompts, **(good | change))
