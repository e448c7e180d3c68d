"""Every family of the list, shared in each way, against the model's own logits and gradients.

`RRGTRAIN_FAMILIES=all` runs the product of `MODES`, image counts and ways; without it each family
runs one mode, chosen by its place in the list, so that all modes are met.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer

from rrgclinical.common.errors import UserError
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.forward import head_logps, hidden_states
from rrgpolicy.model.load import checkpoint_layers, load_policy, read_config
from rrgpolicy.model.own_forward import pixels
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.probe import probe
from rrgpolicy.model.prompt import encode_prompt, prompt_text
from rrgpolicy.model.shared_prefix import shared_prefix_logps
from tests.rrgpolicy.model.equality import Group, gradients, unshared
from tests.rrgpolicy.model.families import (
    PLAIN_ROPE,
    SORTS,
    TEXT_IDS,
    backbone,
    build,
    forwards,
    prompt,
)
from tests.rrgpolicy.model.sighted import PUBLISHED, sighted

WHOLE = os.environ.get("RRGTRAIN_FAMILIES") == "all"
MODES = ("plain", "checkpointing", "lora", "frozen", "lora+checkpointing")
# images of each prompt of a row; all prompts are longer than the families' window
COUNTS = ((0, 0), (1, 1), (3, 1), (3, 0, 1, 1))
TEXT_COUNTS = (0, 0, 0, 0)
# the last group has no tokens: all its reports were cut off, say
LENGTHS = ((5, 1, 9, 8), (3, 7), (2,), ())
LOGPS, GRADIENTS = 1e-12, 1e-10


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
    own = unshared(model, groups)
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
def test_groups_without_tokens_go_through_masks_that_a_family_makes_itself(lengths, images):
    """Gemma 3 joins a mask of image tokens to the causal one."""
    model = build("gemma3", torch.float32)
    of, draw = backbone(model), torch.Generator().manual_seed(7)
    made = [prompt(of, "gemma3", images, 9, k) for k in range(len(lengths))]
    members = [[torch.randint(*TEXT_IDS, (n,), generator=draw) for n in group] for group in lengths]
    given = [{**p.inputs, **p.per_token, **p.images} for p in made]
    found = shared_prefix_logps(model, given, members)
    own = unshared(model, [(p, m) for p, m in zip(made, members, strict=True) if any(map(len, m))])
    torch.testing.assert_close(found.logps, own, rtol=0, atol=1e-5)


# Images of Gemma 3, InternVL and LLaVA-OneVision, held to each family's own processor and model.
FAMILIES = [*PUBLISHED]
# Width and height: squares, radiographs of both ways, thin ones, one of a single row.
SHAPES = ((28, 28), (100, 84), (84, 100), (250, 60), (61, 252), (401, 37), (29, 57), (56, 28))


@lru_cache
def policy_of(name: str) -> Policy:
    return load_policy(sighted(name))


def study_of(shapes: tuple[tuple[int, int], ...], **sections: str) -> tuple[Study, list[Any]]:
    draw = np.random.default_rng(len(shapes))
    pictures = [
        Image.fromarray(draw.integers(0, 255, (height, width, 3), dtype=np.uint8))
        for width, height in shapes
    ]
    views = tuple(ImageRef(Path(f"{k}.png"), "frontal") for k in range(len(shapes)))
    return Study("a", "train", None, None, views, **sections), pictures


def own_processor(name: str, directory: Path) -> Any:
    """The family's processor around its tokenizer and image processor, without one for videos."""
    published = PUBLISHED[name]
    theirs = getattr(transformers, published.processor["processor_class"])

    class Still(theirs):  # type: ignore[misc, valid-type]
        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            return None

    told = json.loads((directory / "processor_config.json").read_text())
    options = {k: v for k, v in told.items() if k != "processor_class"}
    if name != "gemma3":
        options["video_processor"] = None
    reads = getattr(transformers, f"{published.images['image_processor_type']}Pil")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    return Still(reads.from_pretrained(directory), tokenizer, **options)


def rows_of(features: Any) -> int:
    """Count the tokens of features as the model lays them in."""
    parts = features.pooler_output
    return sum(part.reshape(-1, part.shape[-1]).shape[0] for part in parts)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_is_what_the_familys_own_processor_makes(name: str) -> None:
    policy = policy_of(name)
    processor = own_processor(name, sighted(name))
    cases = [(shape,) for shape in SHAPES] + [SHAPES[:2], SHAPES[1:4], SHAPES[4:7], ()]
    failures = []
    for shapes in cases:
        study, pictures = study_of(shapes, indication="Cough.")
        ours = encode_prompt(policy, study, pictures)
        content: list[dict[str, str]] = [{"type": "image"} for _ in shapes]
        content.append({"type": "text", "text": prompt_text(study)})
        turn = [{"role": "user", "content": content}]
        rendered = processor.tokenizer.apply_chat_template(
            turn, chat_template=PUBLISHED[name].template, tokenize=False, add_generation_prompt=True
        )
        theirs = processor(
            images=[pictures] if shapes else None,
            text=rendered,
            return_tensors="pt",
            add_special_tokens=False,
        )
        theirs.pop("attention_mask")
        taken = {k: v for k, v in theirs.items() if k != "mm_token_type_ids"}
        if {*taken} != {*ours.inputs}:
            failures.append(f"{shapes}: {sorted(taken)}, not {sorted(ours.inputs)}")
        failures += [
            f"{shapes}: {key}"
            for key in taken.keys() & ours.inputs
            if not torch.equal(taken[key].float(), ours.inputs[key].float())
        ]
        count = int((ours.input_ids == policy.image_token_id).sum())
        with torch.no_grad():
            laid = shapes and rows_of(policy.family.features(policy.backbone, pixels(policy, ours)))
        if count != (laid or 0):
            failures.append(f"{shapes}: {count} tokens for {laid} of the tower")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_policy_makes_the_same_prompts_and_tells_its_processor_how(name, tmp_path):
    policy = policy_of(name)
    saved = load_policy(policy.save(tmp_path / "saved"))
    for shapes in ((SHAPES[1],), SHAPES[:2], ()):
        study, pictures = study_of(shapes)
        before, after = (encode_prompt(p, study, pictures).inputs for p in (policy, saved))
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)
    told = json.loads((tmp_path / "saved/processor_config.json").read_text())
    assert told.items() >= {
        (key, value) for key, value in PUBLISHED[name].processor.items() if "_token" not in key
    } | {(key, value) for key, value in PUBLISHED[name].processor.items() if "num_image" in key}


@pytest.mark.parametrize("name", FAMILIES)
def test_text_stands_in_a_prompt_without_images_and_forges_none_with_them(name: str) -> None:
    policy = policy_of(name)
    decode = policy.tokenizer.decode
    assert "Cough." in decode(encode_prompt(policy, *study_of((), indication="Cough.")).input_ids)
    assert policy.tokenizer.convert_ids_to_tokens(policy.end_of_turn) == {
        "gemma3": "<end_of_turn>"
    }.get(name, "<|im_end|>")
    shown = [*PUBLISHED[name].named.values(), "<image>", "<video>"]
    ids = {policy.tokenizer.convert_tokens_to_ids(token) for token in shown}
    special = {i for i in ids if i is not None and i != policy.tokenizer.unk_token_id}
    assert special and special <= {*policy.never_sampled}
    counts = [
        torch.isin(
            encode_prompt(policy, *study_of(SHAPES[:2], indication=said)).input_ids,
            torch.tensor(sorted(special)),
        ).sum()
        for said in ("fever", " ".join(["fever", *shown]))
    ]
    assert counts[0] == counts[1]


def test_bounds_of_pixels_count_tiles_or_are_refused_in_one_line() -> None:
    for name, size in (("gemma3", "to 28 x 28 pixels"), ("llava_onevision", "tiles of 28 x 28")):
        with pytest.raises(UserError, match=f"takes no bounds: .*{size}.*max_pixels=null") as e:
            policy_of(name).images.bound(None, 400_000)
        assert "\n" not in str(e.value)
    policy = load_policy(sighted("internvl"))
    study, pictures = study_of(((250, 200),))
    counts = []
    for most in (12, 4, 1):
        policy.images.bound(None, most * 28**2 + 27)
        encoded = encode_prompt(policy, study, pictures)
        counts.append(int((encoded.input_ids == policy.image_token_id).sum()))
    assert counts == [(12 + 1) * 4, (4 + 1) * 4, 4]
    for low, high in ((None, 28**2 - 1), (3 * 28**2, 2 * 28**2)):
        with pytest.raises(UserError, match="wanted at least one, and min_pixels <= max_pixels"):
            policy.images.bound(low, high)


SPOILT: dict[str, tuple[str, str, Any, str]] = {
    "gemma3": ("preprocessor_config.json", "size", {"height": 56, "width": 28}, "size of .* 56 x"),
    "internvl": ("preprocessor_config.json", "max_patches", 0, "into 1 to 0 tiles"),
    "llava_onevision": ("config.json", "vision_feature_select_strategy", "default", "wanted full"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_processor_that_does_not_fit_its_tower_is_refused(name: str, tmp_path: Path) -> None:
    file, key, value, line = SPOILT[name]
    copy = Path(shutil.copytree(sighted(name), tmp_path / name))
    settings = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps(settings | {key: value}))
    with pytest.raises(UserError, match=line) as e:
        load_policy(copy)
    assert "\n" not in str(e.value)


def test_a_family_without_a_rule_is_told_what_is_missing(tmp_path: Path) -> None:
    config = transformers.Mistral3Config(architectures=["Mistral3ForConditionalGeneration"])
    config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"PixtralImageProcessorPil.*families/mistral3\.py"):
        read_config(str(tmp_path))


# Head widths of released checkpoints: 128, and 256 of Gemma 3.
HEADS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 128},
    "gpt_oss": {"head_dim": 64, "rope_parameters": PLAIN_ROPE},
    "gemma3": {"head_dim": 256},
}


@pytest.mark.gpu
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", SORTS)
def test_each_family_goes_its_way_on_a_gpu(family, checkpointing, record_property):
    transformers.logging.set_verbosity_error()
    model = build(family, torch.float32, **HEADS.get(family, {})).cuda()
    if checkpointing:
        checkpoint_layers(model)
    subject = backbone(model, "cuda")
    counts = (2, 1) if SORTS[family].sees else (0, 0)
    prompts = [prompt(subject, family, n, 20 - 7 * k, k) for k, n in enumerate(counts)]
    probed = probe(subject, prompts)
    line = f"{probed.attn}: {probed.line(family)}"
    print(line)
    record_property("probed", line)
    assert probed.way == SORTS[family].ways[0], line
    # the first attention that is tried is FlexAttention; any refusal says what it cannot do
    assert probed.way != "row" or probed.attn == "auto", line
