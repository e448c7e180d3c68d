"""The vision warm-up trains the tower and nothing else, from its seed alone."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from rrgpolicy.model.policy import Policy
from rrgtrain.run.session import warm_up_vision
from rrgtrain.schema import PolicySettings
from rrgtrain.train.loader import PromptLoader
from tests.rrgdata.common import studies_under
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import phantoms, studies


def warmed(steps: int = 3, seed: int = 0) -> tuple[Policy, float]:
    policy = tiny_policy()
    train = studies_under("iu_xray", phantoms())["train"]
    settings = PolicySettings(warmup_steps=steps, warmup_lr=1e-3, seed=seed)
    loss = warm_up_vision(policy, PromptLoader(policy, "short"), train, settings, batch=4)
    return policy, loss


def test_only_the_tower_is_trained() -> None:
    policy, loss = warmed()
    start = dict(tiny_policy().model.named_parameters())
    changed = {n for n, p in policy.model.named_parameters() if not torch.equal(p, start[n])}
    assert changed and all("visual" in name for name in changed)
    assert math.isfinite(loss) and not policy.model.training


def test_it_learns() -> None:
    assert warmed(steps=25)[1] < 0.8 * warmed(steps=1)[1]


def test_the_same_seed_gives_the_same_tower() -> None:
    runs = []
    for seed in (0, 0, 1):
        torch.rand(5)
        runs.append(warmed(seed=seed)[0].model.state_dict())
    assert all(torch.equal(v, runs[1][k]) for k, v in runs[0].items())
    assert any(not torch.equal(v, runs[2][k]) for k, v in runs[0].items())


def test_without_images_labels_or_steps_nothing_happens() -> None:
    policy = tiny_policy()
    prompts = PromptLoader(policy, "short")
    seen = studies_under("iu_xray", phantoms())["train"]
    unlabelled = [replace(study, labels=None) for study in seen]
    for given, steps in ((studies(3), 2), (unlabelled, 2), (seen, 0), ([], 2)):
        settings = PolicySettings(warmup_steps=steps, warmup_lr=1.0)
        assert math.isnan(warm_up_vision(policy, prompts, given, settings, batch=2))
    start = dict(tiny_policy().model.named_parameters())
    assert all(torch.equal(p, start[n]) for n, p in policy.model.named_parameters())
