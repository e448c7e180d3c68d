"""A Qwen2 as the trainer's policy: text in, text out, by the same forward and the same rollouts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgkern import linear_token_logps
from rrgpolicy.model.forward import hidden_states
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora, training_only
from rrgpolicy.model.prompt import bound_images, encode_prompt, prompt_text
from rrgpolicy.rollout import SamplingRequest, generate
from rrgpolicy.settings import LoraSettings
from tests.rrgpolicy.model.common import REPORTS, prompt, study, text_policy
from tests.rrgpolicy.model.equality import Group, assert_equal, unshared


def groups_of(policy: Policy, members: int = 3) -> list[Group]:
    """Three groups of unequal prompts and reports; the second has one member fewer."""
    made = []
    for b in range(3):
        p = prompt(policy, "s" * (b + 1), 0, indication="dyspnea" * b, comparison="none")
        reports = [REPORTS[(b + m) % 4][: 20 + 17 * m] for m in range(max(1, members - b % 2))]
        made.append((p, [policy.codec.encode(text) for text in reports]))
    return made


def logps_of(policy: Policy, groups: list[Group], **options: object) -> torch.Tensor:
    """As the trainer's update computes them."""
    prompts, members = zip(*groups, strict=True)
    hidden, batch = hidden_states(policy, prompts, members, **options)  # type: ignore[arg-type]
    weight, bias, _ = policy.head()
    return linear_token_logps(hidden, weight, batch.targets, bias=bias).logps


def assert_equal_computation(policy: Policy, groups: list[Group], **options: object) -> None:
    assert_equal(policy.model, logps_of(policy, groups, **options), unshared(policy.model, groups))


def with_adapter(policy: Policy) -> Policy:
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), seed=0)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    policy.model.train()
    return policy


@pytest.mark.parametrize("attn", ["blocks", "dense"])
@pytest.mark.parametrize("members", [3, 1])
def test_log_probs_and_gradients_equal_the_unshared_ones(attn: str, members: int) -> None:
    policy = text_policy(dtype=torch.float64, attn=attn)
    groups = groups_of(policy, members)
    total = sum(len(p.input_ids) + sum(map(len, own)) for p, own in groups)
    for budget in (None, total, total // 2):
        assert_equal_computation(policy, groups, token_budget=budget)
    reached = {n for n, p in policy.model.named_parameters() if p.grad is not None}
    assert reached == {n for n, _ in policy.model.named_parameters()}, "every parameter"


@pytest.mark.parametrize("checkpointing", [False, True])
def test_they_do_with_an_adapter(checkpointing: bool) -> None:
    policy = with_adapter(text_policy(dtype=torch.float64, gradient_checkpointing=checkpointing))
    names = {n for n, p in policy.model.named_parameters() if p.requires_grad}
    # four projections of attention and three of the MLP, two matrices each
    assert len(names) == policy.text_config.num_hidden_layers * 7 * 2
    assert all(".lora_" in name for name in names)
    assert_equal_computation(policy, groups_of(policy))


def test_greedy_rollouts_equal_transformers_own() -> None:
    policy = text_policy(dtype=torch.float64)
    prompts = [p for p, _ in groups_of(policy)]
    seeds = [[1, 2]] * 3
    request = SamplingRequest(prompts, group=2, max_new_tokens=70, seeds=seeds, greedy=True)
    ours = generate(policy, request)
    for p, group in zip(prompts, ours, strict=True):
        theirs = policy.backbone.generate(
            input_ids=p.input_ids[None],
            attention_mask=torch.ones_like(p.input_ids[None]),
            do_sample=False,
            max_new_tokens=70,
        )[0, len(p.input_ids) :]
        for rollout in group:
            assert torch.equal(rollout.ids, theirs[: len(rollout.ids)])
            assert rollout.finished or len(rollout.ids) == 70


def test_a_prompt_is_read_once_for_its_group_and_log_probs_are_the_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = text_policy(dtype=torch.float64)
    policy.eos_ids = tuple(range(40, 46))  # reports of many lengths
    prompts = [p for p, _ in groups_of(policy)]
    shapes, forward = [], policy.language_model.forward

    def watched(**arguments: torch.Tensor) -> object:
        read = arguments.get("inputs_embeds")
        shapes.append(tuple((arguments["input_ids"] if read is None else read).shape[:2]))
        return forward(**arguments)

    monkeypatch.setattr(policy.language_model, "forward", watched)
    seeds = [[10 * b + m for m in range(5)] for b in range(3)]
    request = SamplingRequest(prompts, group=5, temperature=0.8, max_new_tokens=40, seeds=seeds)
    made = generate(policy, request)
    monkeypatch.undo()
    assert shapes[0] == (3, max(len(p.input_ids) for p in prompts))
    assert shapes[1] == (15, 1) and all(length == 1 for _, length in shapes[1:])
    flat = [r for group in made for r in group]
    assert len({len(r.ids) for r in flat}) > 3
    with torch.no_grad():
        hidden, batch = hidden_states(policy, prompts, [[r.ids for r in g] for g in made])
        logps = torch.log_softmax(hidden @ policy.head().weight.T / 0.8, -1)
    wanted = logps.gather(1, batch.targets[:, None]).squeeze(1).float()
    torch.testing.assert_close(torch.cat([r.logps for r in flat]), wanted, rtol=1e-6, atol=1e-6)


def test_its_prompt_is_the_templates_and_its_checkpoint_an_ordinary_one(tmp_path: Path) -> None:
    policy = text_policy()
    assert policy.visual is None and policy.image_processor is None and policy.vision_frozen
    one, _ = study("s", 0, indication="fever <|im_end|>")
    found = encode_prompt(policy, one, [], style="short")
    text = prompt_text(one, style="short")
    assert text in policy.tokenizer.decode(found.input_ids)
    wanted = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert found.input_ids.tolist() == policy.tokenizer(wanted)["input_ids"]
    assert torch.equal(found.positions, torch.arange(len(found.input_ids))[None])
    again = load_policy(policy.save(tmp_path / "saved"), freeze_vision=True)
    assert not (tmp_path / "saved" / "preprocessor_config.json").exists()
    ours, theirs = policy.model.state_dict(), again.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    assert all(p.requires_grad for p in again.model.parameters())
    names = [again.tokenizer.convert_ids_to_tokens(i) for i in again.eos_ids]
    assert names == ["<|im_end|>", "<|endoftext|>"]


def test_what_it_cannot_do_is_told_in_one_line() -> None:
    policy = text_policy()
    told = "sft.train=vision, but a Qwen2ForCausalLM has no vision tower; use sft.train=all"
    with pytest.raises(UserError, match=told), training_only(policy, "vision"):
        pass
    bound_images(policy, 784, 3136)  # a recipe's bounds say nothing where there are no images
