"""`preflight`: every trap of a loop is named, and a sound loop gives nothing."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from rrgpolicy import preflight
from tests.rrgpolicy.model import families
from tests.rrgpolicy.model.common import OPENS, text_policy
from tests.rrgpolicy.ranks.own_loop_suite import policy_of, trained_of

IDS = torch.arange(1, 8)[None]


def of(kind: str = "fp32", **options: Any) -> tuple[Any, torch.optim.Optimizer]:
    model = policy_of(kind)
    return model, torch.optim.AdamW(trained_of(model), **{"lr": 1e-3} | options)


def loss_of(model: Any) -> Tensor:
    out: Tensor = model(input_ids=IDS).logits.float().log_softmax(-1)[..., 1].mean()
    return out


def names(model: nn.Module, optimizer: Any, step: Callable[[], Any] | None = None, **more: Any):
    """Return what is named of the loop, and hold that each fault has its line and mending."""
    faults = preflight(model, optimizer, step or (lambda: loss_of(model).backward()), **more)
    assert all(fault.line and fault.mend for fault in faults)
    assert all("\n" not in fault.line for fault in faults)
    return {fault.name: fault.line for fault in faults}


@pytest.mark.parametrize("kind", ["fp32", "lora"])
def test_a_sound_loop_gives_nothing_and_is_left_as_it_was(kind: str) -> None:
    model, optimizer = of(kind)
    loss_of(model).backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    weights = copy.deepcopy(model.state_dict())
    model.eval()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()

    def step() -> None:
        model.train()
        optimizer.zero_grad()
        loss = loss_of(model) * (1 + torch.rand(()) + random.random() + np.random.rand())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    clip = partial(torch.nn.utils.clip_grad_norm_, trained_of(model), 1e-4)
    groups = [["Clear.", "Edema."], [[1, 2], torch.tensor([1, 3])], ["Alone."], []]
    saved = {**model.state_dict(), "step": 3}
    assert names(model, optimizer, step, clip=clip, groups=groups, saved=saved) == {}
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    assert states[2] == np.random.get_state()[1].tolist()
    assert not model.training and not optimizer.state
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])
        assert (parameter.grad is None) == (name not in gradients)
        assert parameter.grad is None or torch.equal(parameter.grad, gradients[name])
    assert optimizer.step.__func__ is torch.optim.AdamW.step  # type: ignore[attr-defined]


def test_a_scaled_compiled_loop_of_two_optimisers_is_sound() -> None:
    model, optimizer = of(lr=0.0)  # a warm-up begins there
    compiled, scaler = torch.compile(model, backend="eager"), torch.amp.GradScaler("cpu")
    rest = torch.optim.AdamW([{"params": [optimizer.param_groups[0]["params"].pop()], "lr": 1e-3}])

    def step() -> None:
        for _ in range(2):
            scaler.scale(loss_of(compiled) / 2).backward()
        scaler.step(optimizer)
        model.model.zero_grad()

    assert names(compiled, [optimizer, rest], step) == {}


def test_buffers_are_as_they_were() -> None:
    norm = nn.BatchNorm1d(3)
    sgd = torch.optim.SGD(norm.parameters(), lr=0.1)
    assert names(norm, sgd, lambda: norm(torch.randn(4, 3)).exp().sum().backward()) == {}
    assert norm.running_mean is not None and not norm.running_mean.any()


def test_a_step_that_fails_leaves_all_as_it_was() -> None:
    model, optimizer = of()
    model.lm_head.weight.grad = kept = torch.ones_like(model.lm_head.weight)

    def step() -> None:
        model.requires_grad_(False)
        raise KeyError("batch")

    with pytest.raises(KeyError, match="batch"):
        names(model, optimizer, step)
    assert model.lm_head.weight.grad is kept and len(trained_of(model)) == 21


def test_weights_that_the_optimiser_holds_and_the_model_does_not() -> None:
    model, optimizer = of()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    assert list(names(model, optimizer)) == ["foreign parameters", "parameters not held"]
    assert "1 of the 21" in names(model, optimizer)["foreign parameters"]


def test_weights_that_train_and_no_optimiser_holds() -> None:
    model = policy_of("fp32")
    optimizer = torch.optim.AdamW(model.model.parameters())
    assert names(model, optimizer) == {
        "parameters not held": "lm_head.weight train, and the optimiser does not hold them"
    }
    model.lm_head.requires_grad_(False)
    assert names(model, optimizer) == {}


def test_a_reference_pass_that_switches_a_frozen_part_of_an_adapter_on() -> None:
    model, _ = of("lora")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_B." in name)
    optimizer = torch.optim.AdamW(trained_of(model))

    def step() -> None:
        with model.disable_adapter():
            loss_of(model)
        loss_of(model).backward()

    assert names(model, optimizer) == {}
    line = names(model, optimizer, step).get("requires_grad changed", "")
    assert "lora_A.default.weight and 1 more have another requires_grad" in line
    assert not any(p.requires_grad for n, p in model.named_parameters() if ".lora_A." in n)


def test_a_loss_of_another_model_and_an_adapter_that_is_off() -> None:
    model, optimizer = of()
    other = copy.deepcopy(model)
    assert [*names(model, optimizer, lambda: loss_of(other).backward())] == ["no gradient"]
    config = LoraConfig(r=2, target_modules=["q_proj"])
    adapted: Any = get_peft_model(policy_of("fp32"), config)  # type: ignore[arg-type]
    adapted.get_output_embeddings().requires_grad_(True)
    optimizer = torch.optim.AdamW(trained_of(adapted))

    def step() -> None:
        with adapted.disable_adapter():
            loss_of(adapted).backward()

    assert [*names(adapted, optimizer, step)] == ["adapter without gradient"]


def test_a_norm_of_less_than_the_optimiser_holds() -> None:
    model, optimizer = of()
    clip = partial(torch.nn.utils.clip_grad_norm_, [*model.model.parameters()], 1.0)
    assert [*names(model, optimizer, clip=clip)] == ["another norm"]
    nan = names(model, optimizer, lambda: (loss_of(model) / 0).backward(), clip=clip)
    assert [*nan] == ["gradients not finite"]


BETAS = [(1e-2, 0.95, []), (1e-2, 0.999, ["bf16 under a large beta2"])]


@pytest.mark.parametrize(("lr", "beta2", "faults"), [*BETAS, (1e-6, 0.95, ["rate below bf16"])])
def test_what_rounds_away_in_bf16(lr: float, beta2: float, faults: list[str]) -> None:
    model, optimizer = of("bf16", lr=lr, betas=(0.9, beta2))
    assert [*names(model, optimizer)] == faults
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)  # begins at 0
    assert optimizer.param_groups[0]["lr"] == 0 and warm.last_epoch == 0
    assert [*names(model, optimizer)] == faults
    if faults[:1] == ["bf16 under a large beta2"]:  # its moments are not of the weights' dtype
        nadam = torch.optim.NAdam(model.parameters(), lr=lr, betas=(0.9, beta2))
        assert [*names(model, nadam)] == faults
        adam = pytest.importorskip("bitsandbytes.optim").AdamW8bit
        assert names(model, adam(model.parameters(), lr=lr, betas=(0.9, beta2))) == {}
    model, optimizer = of("lora", lr=1e-6)  # fp32 on frozen bf16
    assert names(model, optimizer) == {}


def test_half_a_unit_of_bf16_is_where_a_weight_stays() -> None:
    model = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    for weight in (0.75, 0.0121, 1.0, 1.9, 3.0):
        nn.init.constant_(model.weight, weight)
        value = model.weight.item()
        for lr in (2.0**-k for k in range(4, 16)):
            moves = float(torch.tensor(value).add(1.01 * lr).bfloat16()) != value
            optimizer = torch.optim.SGD(model.parameters(), lr=lr)
            faults = names(model, optimizer, lambda: model(torch.ones(1, 1).bfloat16()).backward())
            assert ("rate below bf16" in faults) != moves


@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3"])
def test_images_without_token_types(name: str) -> None:
    model = families.build(name, torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = dict(families.prompt(families.backbone(model), name, 1, 5).inputs)

    def names_with(inputs: dict[str, Any]) -> list[str]:
        return [*names(model, optimizer, lambda: model(**inputs).logits.sum().backward())]

    types = {k: v for k, v in inputs.items() if k.endswith("token_type_ids")}
    image = model.config.image_token_id
    types = types or {"token_type_ids": (inputs["input_ids"] == image).long()}
    typed = {k: v for k, v in inputs.items() if k not in types}
    assert names_with(typed | types) == []
    assert names_with(typed) == ["no token types"]
    zeros = {k: torch.zeros_like(v) for k, v in types.items()}
    assert names_with(typed | zeros) == ["no token types"]
    assert names_with({"input_ids": IDS}) == []
    pixels = inputs["pixel_values"].clamp(-1, 1)
    white = torch.where(torch.arange(pixels.shape[-1]) % 16 > 0, 1.0, pixels)
    for odd in (pixels * 59, pixels / 255 - 1, white):  # 16 bits, rescaled twice, clipped
        assert names_with(typed | types | {"pixel_values": odd}) == ["pixels of no film"]


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, pixel_values: Any) -> Tensor:
        out: Tensor = sum(p.float().sum() * self.scale for p in pixel_values)  # type: ignore[assignment]
        return out


class PaliGemma(Tower):
    config = SimpleNamespace(model_type="paligemma")

    def forward(self, pixel_values: Any, token_type_ids: Any = None) -> Tensor:
        return super().forward(pixel_values)


FILM = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
CLIP = torch.tensor([1.93, 2.07, 2.15])[:, None, None] * torch.ones(2, 3, 8, 8)  # its white
PADDED = torch.cat([FILM[None] - 1, torch.zeros(1, 22, 3, 8, 8)], 1)
SOUND = [FILM, [*FILM], PADDED, FILM[:1] * 0, CLIP - 4, (FILM * 255).byte()]
SOUND += [FILM.repeat(1, 9, 1, 1) * 99, FILM[0, 0] - 2]
SOUND += [torch.rand(4, 24, generator=torch.Generator().manual_seed(2))]
ODD = [CLIP, [*FILM, FILM[0] * 255], FILM / 255, PADDED / 255 - 1]


@pytest.mark.parametrize(("pixels", "odd"), [(p, False) for p in SOUND] + [(p, True) for p in ODD])
def test_pixels_of_each_layout(pixels: Any, odd: bool) -> None:
    tower = Tower()
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.1)
    faults = names(tower, optimizer, lambda: tower(pixel_values=pixels).backward())
    assert [*faults] == ["pixels of no film"] * odd


def test_token_types_of_a_prompt_whose_images_are_0() -> None:
    tower = PaliGemma()
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.1)
    zeros = torch.zeros(2, 5, dtype=torch.int64)
    assert names(tower, optimizer, lambda: tower(FILM, zeros).backward()) == {}
    assert [*names(tower, optimizer, lambda: tower(FILM).backward())] == ["no token types"]


def test_groups_of_one_text() -> None:
    model, optimizer = of()
    equal = [["a", "a"], [torch.tensor([1, 2]), [1, 2]], ["a", "b"], ["a"]]
    assert names(model, optimizer, groups=equal)["equal members"].startswith("2 of 4 groups")
    rewards = np.array([[1.0, 2.0], [0.5, 0.5]])
    assert names(model, optimizer, rewards=rewards) == {}
    rewards.flags.writeable = False  # as `ray.get` hands them out
    assert [*names(model, optimizer, rewards=rewards)] == ["read-only rewards"]
    assert [*names(model, optimizer, rewards=[[0, np.nan], [1]])] == ["rewards not finite"]
    assert [*names(model, optimizer, rewards=torch.ones(2, 3))] == ["equal rewards"]


def test_a_prompt_that_opens_what_the_template_closes() -> None:
    model, optimizer = of()
    tokenizer = text_policy().tokenizer
    turns = {"system": "You report.", "user": "Describe.", "assistant": "The heart is normal."}
    messages = [{"role": role, "content": content} for role, content in turns.items()]
    asked: dict[str, Any] = {"tokenizer": tokenizer, "messages": messages}
    assert names(model, optimizer, **asked) == {}
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"][0]
    assert names(model, optimizer, taught=ids, **asked) == {}
    accents = [messages[1], {"role": "assistant", "content": "pequen\u0303a"}]
    render = partial(tokenizer.apply_chat_template, tokenize=False)
    texts = [render(accents), render(accents[:1], add_generation_prompt=True), *"pequen\u0303a"]
    composed, *parts = tokenizer(texts)["input_ids"]  # by its normalizer, as Qwen's
    accented = partial(names, model, optimizer, tokenizer=tokenizer, messages=accents)
    assert accented(taught=composed) == {}
    assert "trains 'n\u0303a" in accented(taught=[i for p in parts for i in p]).popitem()[1]
    tokenizer.bos_token = tokenizer.eos_token  # which the tokenizer writes, as LLaVA-1.5's
    first = torch.tensor([tokenizer.bos_token_id])
    assert names(model, optimizer, taught=torch.cat([first, ids]), **asked) == {}
    both = torch.cat([first, first, ids])
    assert [*names(model, optimizer, taught=both, **asked)] == ["another conversation"]
    twice = torch.cat([ids[:1], ids])  # as where tokenizer and template write the first token
    assert [*names(model, optimizer, taught=twice, **asked)] == ["another conversation"]
    tokenizer.chat_template = OPENS
    line = names(model, optimizer, **asked)["another conversation"]
    assert r"trains 'The heart is normal.'" in line and r"writes '\n</think>" in line
    closed = {"chat_template_kwargs": {"enable_thinking": False}}
    assert names(model, optimizer, **asked, **closed) == {}


def test_entries_of_a_checkpoint_of_another_kind() -> None:
    model, optimizer = of()
    saved: dict[str, Any] = {n: p.bfloat16() for n, p in model.state_dict().items()}
    assert "and 18 more are saved in another dtype" in names(model, optimizer, saved=saved).get(
        "saved otherwise", ""
    )
    into = {"tokens": torch.zeros((), dtype=torch.int64), "rate": torch.zeros(())}
    assert names(model, optimizer, saved=into, into=into) == {}
    for saved in ({"tokens": torch.zeros(())}, {"rate": 1.0}):
        assert [*names(model, optimizer, saved=saved, into=into)] == ["saved otherwise"]
    nested = {"model": model.state_dict(), "optimizer": {"state": {0: into}}}
    assert names(model, optimizer, saved={"model": dict(nested["model"])}, into=nested) == {}
    bare = {n: MappingProxyType(of) for n, of in {"saved": saved, "into": into}.items()}
    assert [*names(model, optimizer, **bare)] == ["saved otherwise"]
    assert [*names(model, optimizer, saved={"n": 3}, into={"n": "3"})] == ["saved otherwise"]
    odd = {"optimizer": {"state": {0: {"rate": torch.zeros((), dtype=torch.bfloat16)}}}}
    assert (
        "['rate'] are saved" in names(model, optimizer, saved=odd, into=nested)["saved otherwise"]
    )


def test_what_is_no_part_of_a_loop_is_named() -> None:
    model, optimizer = of()
    with pytest.raises(TypeError, match="rewards is a list; wanted a list a group, "):
        preflight(model, optimizer, print, rewards=[0.5, 1.0])
    for words, told in {
        (None, optimizer, print): "model is a NoneType; wanted a torch.nn.Module",
        (model, "adamw", print): "optimizer is a str; wanted one of torch.optim",
        (model, optimizer, 3): "step is a int; wanted a function without arguments",
    }.items():
        with pytest.raises(TypeError, match=told):
            preflight(*words)  # type: ignore[arg-type]
