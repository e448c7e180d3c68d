"""TRL's rows with other families' arguments reach the model whole."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from rrgtrain.integrations.trl import SharedPrefix
from tests.rrgpolicy.model.families import backbone, build, prompt


class Rows:
    """The part of GRPOTrainer that the mixin stands in for."""

    temperature = 1.0
    accelerator = SimpleNamespace(
        num_processes=1, unwrap_model=lambda model: model, autocast=nullcontext
    )

    def _get_per_token_logps_and_entropies(self) -> None: ...


class Trainer(SharedPrefix, Rows):
    """Rows, shared."""


def test_token_types_and_pixels_of_each_row_are_its_own() -> None:
    model = build("gemma3")
    of = backbone(model)
    prompts = [prompt(of, "gemma3", images, 9, images) for images in (2, 0, 1)]
    of_row, completion = [0, 1, 0, 2], torch.randint(3, 80, (4, 5))
    longest = max(len(p.input_ids) for p in prompts)

    def left(values: torch.Tensor) -> torch.Tensor:
        return pad(values, (longest - len(values), 0))

    ids = torch.stack([left(prompts[k].input_ids) for k in of_row])
    mask = torch.stack([left(torch.ones_like(prompts[k].input_ids)) for k in of_row])
    types = torch.stack([left(prompts[k].per_token["token_type_ids"][0]) for k in of_row])
    pixels = [prompts[k].images["pixel_values"] for k in of_row if prompts[k].images]
    counts = [len(prompts[k].images.get("pixel_values", ())) for k in of_row]
    arguments: dict[str, Any] = {
        "input_ids": torch.cat([ids, completion], 1),
        "attention_mask": torch.cat([mask, torch.ones_like(completion)], 1),
        "token_type_ids": torch.cat([types, torch.zeros_like(completion)], 1),
        "pixel_values": torch.cat(pixels),
    }
    found, _, _ = Trainer()._get_per_token_logps_and_entropies(
        model, logits_to_keep=5, num_images=counts, **arguments
    )
    for r, k in enumerate(of_row):
        row = torch.cat([prompts[k].input_ids, completion[r]])[None]
        kinds = pad(prompts[k].per_token["token_type_ids"], (0, 5))
        logits = model(input_ids=row, token_type_ids=kinds, **prompts[k].images).logits[0, -6:-1]
        own = logits.log_softmax(-1).gather(1, completion[r][:, None])[:, 0]
        assert (found[r] - own).abs().max() < 1e-6
    with pytest.raises(ValueError, match="pixel_values without num_images"):
        Trainer()._get_per_token_logps_and_entropies(model, logits_to_keep=5, **arguments)
