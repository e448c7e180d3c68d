"""A tiny policy and studies for the tests of the policy and of the rollouts."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from PIL import Image

from rrgtrain.data.study import ImageRef, Study
from rrgtrain.policy.load import Policy, load_policy
from rrgtrain.policy.prompt import EncodedPrompt, encode_prompt
from rrgtrain.policy.tiny import TinyConfig, build_tiny

REPORTS = (
    "The heart is enlarged. There is a small left pleural effusion. No pneumothorax.",
    "Lungs are clear. No pleural effusion or pneumothorax. Heart size is normal.",
    "Mild interstitial edema. Support devices are unchanged.",
    "Right lower lobe consolidation, possibly pneumonia. No effusion.",
)
CONFIG = TinyConfig(width=64, layers=2, vision_layers=2, vocabulary=420, seed=3)


@lru_cache(maxsize=1)
def tiny_directory() -> Path:
    return build_tiny(CONFIG, REPORTS * 5, Path(mkdtemp(prefix="tiny-")))


def tiny_policy(**options: object) -> Policy:
    """A fresh policy. Weights are scaled up: at initialisation attention is nearly uniform, and
    a wrong mask would hardly show in the log-probs."""
    policy = load_policy(tiny_directory(), **options)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, weight in policy.backbone.named_parameters():
            if weight.dim() > 1 and "embed_tokens" not in name:
                weight.mul_(4.0)
    return policy


def study(name: str, views: int, **sections: str) -> tuple[Study, list[Image.Image]]:
    """A study of random pictures; the third view is a prior frontal."""
    kinds = (("frontal", False), ("lateral", False), ("frontal", True))
    images = tuple(ImageRef(Path(f"{name}-{v}.png"), *kinds[v]) for v in range(views))
    rng = np.random.default_rng([len(name), views])
    # Two shapes: one whole window, and a wide picture of other rows than columns.
    shapes = ((112, 112), (84, 168), (112, 112))
    pictures = [
        Image.fromarray(rng.integers(0, 255, (*shapes[v], 3), dtype=np.uint8)) for v in range(views)
    ]
    return Study(name, "train", None, None, images, **sections), pictures


def prompt(policy: Policy, name: str, views: int, **sections: str) -> EncodedPrompt:
    return encode_prompt(policy, *study(name, views, **sections), style="short")
