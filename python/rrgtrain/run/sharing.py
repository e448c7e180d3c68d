"""Decide how a run shares its prompts, once and for all ranks."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_write
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.attention import use_rows
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.load import checkpoint_layers
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.probe import NAMES, NoWay, Probed, probe
from rrgpolicy.model.prompt import EncodedPrompt, encode_prompt
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.schema import PolicySettings

FILE = "sharing.json"
# Layers of the copy that is probed while weights are still in their files, two periods at least.
LAYERS = 8


def decide_sharing(policy: Policy, settings: PolicySettings, work: Path) -> None:
    """Probe the policy before it is sharded, and set the way of its forwards.

    A resumed run goes the way it went before, kept in `work`, or says why not. The tiny policy is
    of one model, whose way the tests hold. Raises UserError where `policy.sharing` names a way that
    is not exact, or none is.
    """
    if settings.path == "tiny" and settings.sharing in ("auto", "row"):
        return
    with ranks.propagate_errors():
        probed = ranks.from_main(lambda: _found(policy, settings, work / FILE))
    probed.applied(policy)


def _found(policy: Policy, settings: PolicySettings, file: Path) -> Probed:
    name = type(policy.backbone).__name__
    before = _kept(file)
    sharing = settings.sharing
    try:
        subject = _stand_in(policy) if policy.layout.unread else policy
        examples = [prompt for _, prompt in example_prompts(policy)]
        probed = None
        if sharing == "auto" and before is not None:
            try:
                probed = probe(subject, examples, before.way)
            except NoWay as error:
                print(f"rrgtrain: not as before the resume: {error}", file=sys.stderr)
        probed = probed or probe(subject, examples, sharing)
    except NoWay as error:
        raise UserError(str(error)) from error
    print(f"rrgtrain: {probed.line(name)}", file=sys.stderr)
    if before is not None and probed.way != before.way:
        kind = f"policy.sharing={sharing}" if sharing != "auto" else "what is installed has changed"
        print(
            f"rrgtrain: the run shared prompts by {NAMES[before.way]} so far ({kind})",
            file=sys.stderr,
        )
    atomic_write(file, json.dumps(dataclasses.asdict(probed), indent=1) + "\n")
    return probed


def _kept(file: Path) -> Probed | None:
    if not file.is_file():
        return None
    values: dict[str, Any] = json_reader.read(file, dict)
    fields = {field.name for field in dataclasses.fields(Probed)}
    if values.keys() != fields or values["way"] not in NAMES:
        raise UserError(f"{file} is not what a run has written; delete it")
    return Probed(**{**values, "refused": tuple(values["refused"])})


def example_prompts(
    policy: Policy, style: str = "editgrpo", most: int | None = None
) -> list[tuple[Study, EncodedPrompt]]:
    """Encode prompts of two images, or `most`, and one; of text without a tower."""
    most = (2 if most is None else min(2, most)) if policy.sees_images else 0
    counts = (most, min(1, most))
    draw = np.random.default_rng(0)
    prompts = []
    for number, count in enumerate(counts):
        views = tuple(ImageRef(Path(f"{k}.png"), "frontal") for k in range(count))
        indication = "Cough and fever for two days." if number else "Chest pain."
        study = Study(f"probe-{number}", "train", None, None, views, indication=indication)
        pixels = draw.integers(0, 255, (count, 84, 112, 3), dtype=np.uint8)
        images = [Image.fromarray(p) for p in pixels]
        prompts.append((study, encode_prompt(policy, study, images, style=style)))
    return prompts


def _stand_in(policy: Policy) -> Backbone:
    """A policy of the same configuration with few layers and random weights, its own being unread.

    What trains and what is frozen is as in the policy.
    """
    own = policy.backbone
    # without the attention that it runs with, which no model may be built with
    config = type(own.config).from_dict(own.config.to_dict())
    text = config.get_text_config()
    kinds = list(getattr(text, "layer_types", None) or ())
    period = next((p for p in range(1, len(kinds)) if kinds[p:] == kinds[:-p]), 1)
    text.num_hidden_layers = min(text.num_hidden_layers, max(LAYERS, 2 * period))
    if kinds:
        text.layer_types = kinds[: text.num_hidden_layers]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = type(own)(config).to(policy.device)
    use_rows(model)
    trained = {name for name, p in own.named_parameters() if p.requires_grad}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    if getattr(policy.language_model.layers[0], "gradient_checkpointing", False):
        checkpoint_layers(model)
    return Backbone(model=model, device=policy.device, pad_id=policy.pad_id, attn=policy.attn)
