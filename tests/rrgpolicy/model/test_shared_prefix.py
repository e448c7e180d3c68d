"""The public function, called with plain models of transformers as another loop would have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2Config, Qwen2ForCausalLM

import rrgpolicy.model
from rrgpolicy.model import SharedPrefixLogps, shared_prefix_logps
from rrgpolicy.model.own_forward import VisionCache
from rrgpolicy.model.prompt import EncodedPrompt
from tests.rrgpolicy.model.common import REPORTS, prompt, spread, tiny_directory, tiny_policy
from tests.rrgpolicy.model.equality import Group, assert_equal, own_logits, unshared

POLICY = tiny_policy()
TEXT = {"vocab_size": 420, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}


def qwen2(dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    torch.manual_seed(1)
    config = Qwen2Config(**(TEXT | options))
    config._attn_implementation = "sdpa"
    return spread(Qwen2ForCausalLM(config)).to(dtype).eval()


def qwen2_5_vl(dtype: torch.dtype = torch.float64, attention: str = "sdpa") -> Any:
    return spread(
        Qwen2_5_VLForConditionalGeneration.from_pretrained(
            tiny_directory(), dtype=dtype, attn_implementation=attention
        )
    ).eval()


def groups_for(views: list[int]) -> list[Group]:
    """Groups of unequal prompts, members and reports; the last has a single member."""
    made = []
    for b, count in enumerate(views):
        p = prompt(POLICY, "s" * (b + 1), count, indication="dyspnea" * b)
        reports = [REPORTS[(b + m) % 4][: 15 + 14 * m] for m in range(max(1, 3 - b))]
        made.append((p, [POLICY.codec.encode(text) for text in reports]))
    return made


def processed(p: EncodedPrompt) -> dict[str, Any]:
    """Return what a processor returns for it."""
    found = {"input_ids": p.input_ids[None], "attention_mask": torch.ones(1, len(p.input_ids))}
    if p.pixel_values is not None:
        found |= {"pixel_values": p.pixel_values, "image_grid_thw": p.image_grid_thw}
    return found


def shared(model: Any, groups: list[Group], **options: Any) -> SharedPrefixLogps:
    prompts = [processed(p) for p, _ in groups]
    return shared_prefix_logps(model, prompts, [members for _, members in groups], **options)


def with_lora(model: Any) -> Any:
    torch.manual_seed(0)
    names = ["q_proj", "v_proj", "down_proj"]
    config = peft.LoraConfig(
        r=4, lora_dropout=0.0, target_modules=names, init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, config).train()


def with_trained_tokens(model: Any) -> Any:
    tokens = {"embed_tokens": [2, 5]}
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=tokens)
    return peft.get_peft_model(model, config).train()


def with_adapter(model: Any) -> Any:
    """By transformers itself, which wraps nothing."""
    torch.manual_seed(0)
    names = ["q_proj", "v_proj", "down_proj"]
    model.add_adapter(peft.LoraConfig(r=4, target_modules=names, init_lora_weights=False))
    return model.double()


def with_frozen_tower(model: Any) -> Any:
    model.model.visual.requires_grad_(False)
    return model


def with_checkpointing(model: Any) -> Any:
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


@pytest.mark.parametrize("views", [[1], [3], [3, 0, 1]], ids=str)
def test_qwen2_5_vl_equals_its_unshared_self(views: list[int]) -> None:
    model, groups = qwen2_5_vl(), groups_for(views)
    assert_equal(model, shared(model, groups).logps, unshared(model, groups))


@pytest.mark.parametrize("change", [with_lora, with_frozen_tower, with_checkpointing])
def test_qwen2_5_vl_as_it_is_trained(change: Any) -> None:
    model, groups = change(qwen2_5_vl()), groups_for([1, 3])
    assert_equal(model, shared(model, groups, token_budget=150).logps, unshared(model, groups))


WAYS = [lambda m: m, with_lora, with_adapter, with_trained_tokens, with_checkpointing]


@pytest.mark.parametrize("change", WAYS)
def test_qwen2_equals_its_unshared_self(change: Any) -> None:
    model, groups = change(qwen2()), groups_for([0, 0, 0])
    assert_equal(model, shared(model, groups).logps, unshared(model, groups))


def test_what_comes_with_the_log_probs() -> None:
    model, groups = qwen2(), groups_for([0, 0])
    found = shared(model, groups, temperature=0.7, entropy=True)
    flat = [m for _, members in groups for m in members]
    assert torch.equal(found.targets, torch.cat(flat))
    assert found.offsets.tolist() == [0, *torch.tensor([len(m) for m in flat]).cumsum(0).tolist()]
    assert found.group_offsets.tolist() == [0, 3, 5]
    (p, members), *_ = groups
    wanted = (own_logits(model, p, members[0]) / 0.7).log_softmax(-1)
    first = slice(0, len(members[0]))
    torch.testing.assert_close(
        found.logps[first], wanted.gather(1, members[0][:, None])[:, 0], check_dtype=False
    )
    torch.testing.assert_close(
        found.entropy[first], -(wanted.exp() * wanted).sum(1), check_dtype=False
    )
    assert shared(model, groups).entropy is None


def test_padding_of_a_prompt_and_the_form_of_its_ids_change_nothing() -> None:
    model, groups = qwen2(), groups_for([0])
    wanted = shared(model, groups).logps
    ids, members = groups[0][0].input_ids, groups[0][1]
    padded = torch.cat([torch.full((4,), 7), ids])[None].int()
    mask = torch.cat([torch.zeros(4), torch.ones(len(ids))])[None]
    for given in ({"input_ids": ids}, {"input_ids": padded, "attention_mask": mask}):
        assert torch.equal(shared_prefix_logps(model, [given], [members]).logps, wanted)


def test_a_cache_keeps_the_tower_from_running_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, groups = with_frozen_tower(qwen2_5_vl(torch.float32)), groups_for([1, 0])
    prompts = [processed(p) for p, _ in groups]
    completions = [members for _, members in groups]
    cache = VisionCache(1 << 20)
    with pytest.raises(ValueError, match="prompt 0 has images without a key"):
        shared_prefix_logps(model, prompts, completions, vision_cache=cache)
    prompts[0]["key"] = "study 0"
    first = shared_prefix_logps(model, prompts, completions, vision_cache=cache).logps
    assert list(cache) == ["study 0"]
    monkeypatch.setattr(model.model.visual, "forward", None)
    again = shared_prefix_logps(model, prompts, completions, vision_cache=cache).logps
    assert torch.equal(first, again)


def refused(model: Any, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:
        shared(model, groups_for([0]), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_that_cannot_share_is_refused_with_the_reason() -> None:
    assert "a Qwen2Model cannot share" in refused(qwen2().model)
    assert "a Parallel cannot share" in refused(type("Parallel", (torch.nn.Module,), {})())
    t5 = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    assert "a t5 is an encoder-decoder" in refused(transformers.T5ForConditionalGeneration(t5))
    flex = qwen2(torch.float32)
    flex.config._attn_implementation = "flex_attention"
    assert "the model's attention is 'flex_attention': load it with attn_imp" in refused(flex)
    assert "sharing='rows': use one of auto, row, cache, none" in refused(qwen2(), sharing="rows")
    config = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    assert "use LoRA" in refused(peft.get_peft_model(qwen2(torch.float32), config))
    head = peft.LoraConfig(r=2, target_modules=["lm_head"], task_type="CAUSAL_LM")
    assert "the head is PEFT's Linear" in refused(peft.get_peft_model(qwen2(torch.float32), head))
    tied = with_trained_tokens(qwen2(tie_word_embeddings=True))
    assert "trainable_token_indices" in refused(tied)
    assert "cannot share prefixes: model.compile()" in refused(torch.compile(qwen2()))
    assert "attn='flash': use one of auto, blocks, flex, dense" in refused(qwen2(), attn="flash")


def test_windows_and_another_attention_are_the_models_own() -> None:
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    eager = qwen2()
    eager.set_attn_implementation("eager")
    for model, close in ((qwen2(**window), 1e-10), (eager, 1e-6)):  # its softmax is in fp32
        groups = groups_for([0, 0])
        groups.append((groups[0][0], groups[0][1][:1]))  # alone, it has no mask elsewhere
        for each in (groups, groups[2:]):
            found = shared(model, each).logps
            assert (found - unshared(model, each)).abs().max() < close


def test_images_are_probed_though_text_came_first(capsys: pytest.CaptureFixture[str]) -> None:
    model, groups = qwen2_5_vl(torch.float32), groups_for([0, 1])
    for each in (groups[:1], groups, groups[:1], groups[1:]):
        shared(model, each)
    assert capsys.readouterr().err.count("prompts are shared by a packed row") == 2


def test_no_prompt_has_no_log_probs_and_an_empty_one_is_told() -> None:
    model = qwen2()
    assert shared_prefix_logps(model, [], []).logps.shape == (0,)
    with pytest.raises(ValueError, match="group 0 has an empty prefix"):
        shared_prefix_logps(model, [{"input_ids": torch.zeros(0).long()}], [[torch.ones(2).long()]])


def test_prompts_that_do_not_fit_are_told() -> None:
    model, (group, *_) = qwen2_5_vl(torch.float32), groups_for([1])
    whole, members = processed(group[0]), [group[1]]
    for change, message in (
        ({"pixel_values_videos": 1}, "prompt 0 has pixel_values_videos: give input_ids, "),
        ({"input_ids": torch.ones(2, 3).long()}, r"input_ids of shape \(2, 3\): give one prompt"),
        ({"image_grid_thw": None}, "give both pixel_values and image_grid_thw"),
        ({"pixel_values": None, "image_grid_thw": None}, "where 0 image"),
    ):
        with pytest.raises(ValueError, match=message):
            shared_prefix_logps(model, [{**whole, **change}], members)
    with pytest.raises(ValueError, match="prompt 0 has images, and the model has no vision tower"):
        shared_prefix_logps(qwen2(), [whole], members)
    with pytest.raises(ValueError, match="token_budget is 0"):
        shared_prefix_logps(model, [whole], members, token_budget=0)
    with pytest.raises(ValueError, match="1 prefixes and 0 lists"):
        shared_prefix_logps(model, [whole], [])
    for other, message in (
        ([1, 2], "prompt 0 is a list: give"),
        (torch.ones(2), "prompt 0 is a Tensor: give"),
        ({"ids": [1, 2]}, "prompt 0 is a dict without input_ids"),
    ):
        with pytest.raises(TypeError, match=message):
            shared_prefix_logps(model, [other], members)  # type: ignore[list-item]


def test_the_loop_in_the_readme_learns() -> None:
    text = Path(rrgpolicy.model.__file__).with_name("README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (code,) = (block for block in blocks if "shared_prefix_logps(" in block)
    assert len(code.strip().splitlines()) <= 30
    names: dict[str, Any] = {}
    exec(code, names)
    model, start = qwen2_5_vl(torch.float32), qwen2_5_vl(torch.float32)
    groups = groups_for([1, 0])
    prompts, completions = [processed(p) for p, _ in groups], [members for _, members in groups]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0])

    def favoured() -> float:
        found = shared(model, groups)
        logps = found.logps.detach().tensor_split(found.offsets[1:-1])
        return float((logps[0].mean() + logps[4].mean()) - (logps[1].mean() + logps[3].mean()))

    before = favoured()
    for _ in range(3):
        metrics = names["step"](model, start, optimizer, prompts, completions, rewards)
    assert favoured() > before
    assert metrics["kl"] > 0 and metrics["ratio_mean"] == 1


IDS = torch.tensor([5, 6])
PROMPT = [{"input_ids": IDS}]


@pytest.mark.parametrize(
    ("prompts", "completions", "line"),
    [
        ({"input_ids": IDS}, [[IDS]], "prompts is dict; wanted a sequence"),
        ([{"input_ids": IDS.float()}], [[IDS]], "prompt 0: input_ids is torch.float32; wanted"),
        ([{"input_ids": [5.7, 6.0]}], [[IDS]], "prompt 0: input_ids holds 5.7; wanted token ids"),
        ([{"input_ids": [5, -1]}], [[IDS]], "prompt 0 has the id -1; the model knows 0 to 419"),
        *(
            (
                [{"input_ids": IDS, "attention_mask": torch.tensor(mask)}],
                [[IDS]],
                "prompt 0: attention_mask",
            )
            for mask in ([1], [0.5, 1])
        ),
        (PROMPT, [None], "completions[0] is None; wanted a sequence"),
        (PROMPT, [IDS], "completions[0][0] is one number; wanted the ids of one completion"),
        (PROMPT, [[IDS], [IDS, IDS.bool()]], "completions[1][1] is torch.bool; wanted token ids"),
        (PROMPT, [[IDS, [420]]], "completion 1 of group 0 has the id 420; the model knows"),
    ],
)
def test_what_cannot_be_read_is_one_line(prompts: Any, completions: Any, line: str) -> None:
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(line)):
        shared_prefix_logps(qwen2(), prompts, completions)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": True},
        *({"token_budget": value} for value in (True, 1.5, float("nan"), "64", [64])),
        *({"entropy": value} for value in ("false", 1, None)),
        *({"vision_cache": value} for value in (True, [])),
    ],
    ids=repr,
)
def test_an_option_of_another_type_is_one_line(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(TypeError, match=f"^{name} is .*; wanted "):
        shared_prefix_logps(qwen2(), [{"input_ids": IDS}], [[IDS]], **options)


def with_lora_on_the_embedding(model: Any) -> Any:
    names = ["embed_tokens", "q_proj"]
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=names))


@pytest.mark.parametrize(
    ("prompt", "completions"),
    [
        ({"input_ids": np.array([[5, 6]])}, [[7, 8], []]),
        ({"input_ids": np.array([5, 6], dtype=np.int32)}, np.array([[[7, 8]]])[0]),
        ({"input_ids": IDS.int()[None]}, [torch.tensor([7, 8]), torch.tensor([])]),
        *(
            ({"input_ids": torch.tensor([[pad, 5, 6]]), "attention_mask": [[0, 1, 1]]}, [[7, 8]])
            for pad in (-100, 420)
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("change", [lambda m: m, with_lora_on_the_embedding])
def test_ids_are_those_of_any_array(change: Any, prompt: dict[str, Any], completions: Any) -> None:
    model = change(qwen2())
    options: dict[str, Any] = {"entropy": np.bool_(False), "token_budget": torch.tensor(4096)}
    plain = shared_prefix_logps(model, [{"input_ids": [5, 6]}], [[[7, 8]]])
    read = shared_prefix_logps(model, [prompt], [completions], **options)
    assert torch.equal(read.logps, plain.logps)
