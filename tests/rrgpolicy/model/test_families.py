"""Every family of the list, shared in each way, against the model's own logits and gradients.

`RRGTRAIN_FAMILIES=all` runs the product of `MODES`, image counts and ways; without it each family
runs one mode, chosen by its place in the list, so that all modes are met.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor

from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.load import checkpoint_layers
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.model.shared_prefix import shared_prefix_logps
from tests.rrgpolicy.model.families import SORTS, TEXT_IDS, backbone, build, forwards, prompt

WHOLE = os.environ.get("RRGTRAIN_FAMILIES") == "all"
MODES = ("plain", "checkpointing", "lora", "frozen", "lora+checkpointing")
# images of each prompt of a row; all prompts are longer than the families' window
COUNTS = ((0, 0), (1, 1), (3, 1), (3, 0, 1, 1))
TEXT_COUNTS = (0, 0, 0, 0)
# the last group has no tokens: all its reports were cut off, say
LENGTHS = ((5, 1, 9, 8), (3, 7), (2,), ())
LOGPS, GRADIENTS = 1e-12, 1e-10

Group = tuple[EncodedPrompt, list[Tensor]]


@contextmanager
def all_in_fp64() -> Iterator[None]:
    """Let what transformers casts to fp32 (norms, softmax, rope) be cast to fp64."""
    before = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64  # type: ignore[misc]
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = before  # type: ignore[misc, method-assign]


def model_of(name: str, mode: str) -> Any:
    model = build(name)
    if "frozen" in mode:
        eyes = backbone(model).eyes()
        frozen = [p for _, p in eyes] or [model.get_input_embeddings().weight]
        for parameter in frozen:
            parameter.requires_grad_(False)
    if "lora" in mode:
        inner = backbone(model)
        targets = inner.family.lora_targets(inner.backbone)
        config = peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
        # other adapters in each run may be so large that what is right is rounded beyond LOGPS
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = peft.get_peft_model(model, config).double()
    if "checkpointing" in mode:
        checkpoint_layers(model.get_base_model() if "lora" in mode else model)
        model.train()
    return model


def groups_of(of: Backbone, name: str, counts: tuple[int, ...]) -> list[Group]:
    draw = torch.Generator().manual_seed(7)
    return [
        (
            prompt(of, name, images, 20 - 4 * k, k),
            [torch.randint(*TEXT_IDS, (n,), generator=draw) for n in LENGTHS[k]],
        )
        for k, images in enumerate(counts)
    ]


def own_logps(model: Any, groups: list[Group]) -> Tensor:
    """By the model's own forward, one completion with its whole prompt at a time."""
    found = []
    for p, members in groups:
        for ids in members:
            row = {"input_ids": torch.cat([p.inputs["input_ids"], ids[None]], 1)}
            for key, values in p.per_token.items():
                row[key] = torch.cat([values, torch.zeros_like(ids)[None]], 1)
            logits = model(**row, **p.images, use_cache=False).logits[0, -len(ids) - 1 : -1]
            found.append(logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0])
    return torch.cat(found) if found else torch.zeros(0)


def gradients(model: Any, logps: Tensor) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    (logps * torch.linspace(-1, 2, len(logps), dtype=logps.dtype).cos()).sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def far(found: dict[str, Tensor], own: dict[str, Tensor]) -> float:
    """The largest difference of a gradient, relative to the largest entry of its parameter."""
    if found.keys() != own.keys():
        return float("inf")
    # the bias of a key has a gradient of 0 but for rounding
    floor = 1e-5 * max(g.abs().max().item() for g in own.values())
    return max(
        (found[n] - g).abs().max().item() / max(g.abs().max().item(), floor) for n, g in own.items()
    )


def check(name: str, mode: str, counts: tuple[int, ...], ways: tuple[str, ...]) -> list[str]:
    """Compare the ways with the model; return a line for each that differs."""
    model = model_of(name, mode)
    plain = backbone(model)
    groups = groups_of(plain, name, counts)
    own = own_logps(model, groups)
    own_gradients, failures = gradients(model, own), []
    for way in ways:
        for attn in ("blocks", "dense") if way == "row" else ("blocks",):
            shared = replace(plain, sharing=way, attn=attn)
            hidden, batch = hidden_states(shared, [p for p, _ in groups], [m for _, m in groups])
            logps = head_logps(shared, hidden, batch.targets)
            worst = (logps - own).abs().max().item()
            by_gradient = far(gradients(model, logps), own_gradients)
            if worst > LOGPS or by_gradient > GRADIENTS:
                failures.append(
                    f"{name} {mode} {counts} by {way}/{attn}: {worst:.0e}, {by_gradient:.0e}"
                )
    return failures


def cases() -> Iterator[tuple[str, str, tuple[int, ...], tuple[str, ...]]]:
    for k, (name, sort) in enumerate(SORTS.items()):
        if not forwards(name):
            continue
        modes = MODES if WHOLE else (MODES[k % len(MODES)],)
        counts = (COUNTS if WHOLE else (COUNTS[-1],)) if sort.sees else (TEXT_COUNTS,)
        ways = tuple(way for way in sort.ways if forwards(name, way))
        for mode in modes:
            for images in counts:
                yield name, mode, images, ways if WHOLE else ways[:-1]


def test_each_way_has_the_models_own_log_probs_and_gradients() -> None:
    transformers.logging.set_verbosity_error()
    failures: list[str] = []
    with all_in_fp64():
        for case in cases():
            try:
                failures += check(*case)
            except Exception as error:
                failures.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
    assert not failures, "\n" + "\n".join(failures)


@pytest.mark.parametrize("images", [1, 0])
@pytest.mark.parametrize("lengths", [[[4], []], [[4], [0]], [[]], [[0]]], ids=str)
def test_groups_without_tokens_go_through_masks_that_a_family_makes_itself(
    lengths: list[list[int]], images: int
) -> None:
    """Gemma 3 joins a mask of image tokens to the causal one."""
    model = build("gemma3", torch.float32)
    of, draw = backbone(model), torch.Generator().manual_seed(7)
    made = [prompt(of, "gemma3", images, 9, k) for k in range(len(lengths))]
    members = [[torch.randint(*TEXT_IDS, (n,), generator=draw) for n in group] for group in lengths]
    given = [{**p.inputs, **p.per_token, **p.images} for p in made]
    found = shared_prefix_logps(model, given, members)
    own = own_logps(model, [(p, m) for p, m in zip(made, members, strict=True) if any(map(len, m))])
    torch.testing.assert_close(found.logps, own, rtol=0, atol=1e-5)
