"""An adapter on the language model's projections, and which part of a policy a stage trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import add_lora, training_only
from rrgpolicy.model.prompt import bound_images, encode_prompt, prompt_text
from rrgpolicy.settings import LoraSettings
from tests.rrgpolicy.model.common import CONFIG, study, tiny_policy


def trainable(policy) -> list[str]:
    return [n for n, p in policy.model.named_parameters() if p.requires_grad]


def test_the_adapter_trains_and_nothing_else_does() -> None:
    policy = tiny_policy()
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), seed=0)
    names = trainable(policy)
    assert names and all(".lora_" in n and "language_model.layers." in n for n in names)
    # four of attention and three of the MLP, two matrices each
    assert len(names) == CONFIG.layers * 7 * 2
    assert policy.vision_frozen and not policy.model.training


def test_it_begins_as_the_base_and_is_drawn_by_its_seed() -> None:
    plain, one, two, other = (tiny_policy() for _ in range(4))
    state = torch.get_rng_state()
    for policy, seed in ((one, 1), (two, 1), (other, 2)):
        add_lora(policy, LoraSettings(rank=2), seed)
    assert torch.equal(torch.get_rng_state(), state)
    ids = torch.arange(5)[None]
    with torch.no_grad():
        assert torch.equal(plain.model(input_ids=ids).logits, one.model(input_ids=ids).logits)
    a, b, c = (dict(p.model.named_parameters()) for p in (one, two, other))
    assert all(torch.equal(a[n], b[n]) for n in trainable(one))
    assert any(not torch.equal(a[n], c[n]) for n in trainable(one))


def test_a_saved_adapter_goes_on_and_another_rank_is_refused(tmp_path: Path) -> None:
    policy = tiny_policy()
    add_lora(policy, LoraSettings(rank=2), seed=0)
    loaded = load_policy(policy.save(tmp_path / "adapter"))
    before = trainable(loaded)
    add_lora(loaded, LoraSettings(rank=2), seed=5)
    assert trainable(loaded) == before
    with pytest.warns(UserWarning, match="policy.lora.alpha=8 has no effect: .* its own, 256$"):
        add_lora(loaded, LoraSettings(rank=2, alpha=8.0), seed=0)
    with pytest.raises(UserError, match="policy.lora.rank=8, but the adapter .* has rank 2; set"):
        add_lora(loaded, LoraSettings(rank=8), seed=0)


def test_without_a_rank_nothing_changes() -> None:
    policy = tiny_policy()
    model, names = policy.model, trainable(policy)
    add_lora(policy, LoraSettings(), seed=0)
    assert policy.model is model and trainable(policy) == names


def test_a_stage_that_trains_vision_alone() -> None:
    policy = tiny_policy()
    everything = trainable(policy)
    with training_only(policy, "vision"):
        inside = trainable(policy)
        assert inside and all("visual" in n for n in inside) and len(inside) < len(everything)
    assert trainable(policy) == everything
    with pytest.raises(RuntimeError), training_only(policy, "vision"):
        raise RuntimeError
    assert trainable(policy) == everything
    with training_only(policy, "all"):
        assert trainable(policy) == everything


def test_a_frozen_tower_leaves_nothing_to_train() -> None:
    policy = tiny_policy(freeze_vision=True)
    told = "sft.train=vision with a frozen vision tower"
    with pytest.raises(UserError, match=told), training_only(policy, "vision"):
        pass


def test_bounds_of_images_change_how_many_tokens_they_take() -> None:
    policy = tiny_policy()
    one, pictures = study("s", 1)
    whole = encode_prompt(policy, one, pictures).mm_token_type_ids.sum()
    bound_images(policy, None, None)
    assert encode_prompt(policy, one, pictures).mm_token_type_ids.sum() == whole
    bound_images(policy, 28 * 28, 56 * 56)
    assert encode_prompt(policy, one, pictures).mm_token_type_ids.sum() == 4 < whole
    with pytest.raises(UserError, match="wanted 784 <= min_pixels <= max_pixels"):
        bound_images(policy, 5000, 4000)
    with pytest.raises(UserError, match="policy.min_pixels=10"):
        bound_images(policy, 10, 4000)


def test_the_prompt_that_asks_for_blocks() -> None:
    one, _ = study("s", 1, indication="dyspnea")
    asked, plain = prompt_text(one, style="think"), prompt_text(one, style="editgrpo")
    for tag in ("<think>", "</think>", "<report>", "</report>"):
        assert tag in asked and tag not in plain
    assert asked.endswith("INDICATION: dyspnea")
    assert asked.startswith(plain.removesuffix("\nINDICATION: dyspnea"))
