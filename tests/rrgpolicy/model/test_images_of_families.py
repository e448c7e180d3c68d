"""Images of Gemma 3, InternVL and LLaVA-OneVision, held to each family's own processor and model.

The processors of transformers that import torchvision for videos are opened without them.
"""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import AutoTokenizer

from rrgclinical.common.errors import UserError
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.load import load_policy, read_config
from rrgpolicy.model.own_forward import pixels
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import bound_images, encode_prompt, prompt_text
from tests.rrgpolicy.model.sighted import PUBLISHED, sighted

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
def test_a_saved_policy_makes_the_same_prompts_and_tells_its_processor_how(
    name: str, tmp_path: Path
) -> None:
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
            bound_images(policy_of(name), None, 400_000)
        assert "\n" not in str(e.value)
        bound_images(policy_of(name), None, None)
    policy = load_policy(sighted("internvl"))
    study, pictures = study_of(((250, 200),))
    counts = []
    for most in (12, 4, 1):
        bound_images(policy, None, most * 28**2 + 27)
        encoded = encode_prompt(policy, study, pictures)
        counts.append(int((encoded.input_ids == policy.image_token_id).sum()))
    assert counts == [(12 + 1) * 4, (4 + 1) * 4, 4]
    for low, high in ((None, 28**2 - 1), (3 * 28**2, 2 * 28**2)):
        with pytest.raises(UserError, match="wanted at least one, and min_pixels <= max_pixels"):
            bound_images(policy, low, high)


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
