"""Images of Gemma 3, InternVL and LLaVA-OneVision, held to each family's own processor and model.

The processors of transformers that import torchvision for videos are opened without them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import AutoTokenizer

from rrgdata.study import ImageRef, Study
from rrgtrain.policy.load import load_policy
from rrgtrain.policy.own_forward import pixels
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import encode_prompt, prompt_text
from tests.rrgtrain.policy.sighted import PUBLISHED, sighted

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
