"""With masters in fp32, steps at the papers' learning rates move the weights, and teach."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest
import torch

from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import sharding
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import Group
from rrgtrain.algorithms.base import loss_of
from rrgtrain.algorithms.group import members
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgtrain.common import ALL_STUDIES, SMALL_POLICY, accumulate, groups_of, recipe
from tests.rrgtrain.recipes.loaded import PAPER
from tests.rrgtrain.runs import command

Setting = tuple[str, bool, float, float, tuple[float, float], float]

SAMPLED = ((REPORTS[0], REPORTS[1], REPORTS[2]), (REPORTS[3], REPORTS[0]))


@lru_cache(maxsize=1)
def papers() -> dict[str, Recipe]:
    return {name: load_config(Recipe, name, []) for name in PAPER}


def settings_of(cfg: Recipe) -> list[Setting]:
    """List what a step of fine-tuning or RL depends on, past warm-up and before any decay."""
    sft, rl, policy = cfg.sft, cfg.rl, cfg.policy
    betas = (rl.beta1, rl.beta2)
    return [
        (policy.dtype, policy.freeze_vision, sft.lr, sft.weight_decay, (0.9, 0.999), sft.clip),
        (policy.dtype, policy.freeze_vision, rl.lr, rl.weight_decay, betas, rl.clip),
    ]


def placed(dtype: str | torch.dtype, *, freeze_vision: bool = False) -> Policy:
    policy = tiny_policy(dtype=dtype, masters=True, freeze_vision=freeze_vision)
    sharding.setup("none", policy)
    return policy


def backward(policy: Policy, groups: list[Group]) -> None:
    """Real gradients, from a packed forward."""
    advantages = torch.linspace(-1.0, 1.0, len(members(groups)))
    cfg = recipe()
    accumulate(policy, None, groups, advantages, loss_of(cfg.rl, cfg.rollout), cfg.rl)


def whole(policy: Policy) -> dict[str, torch.Tensor]:
    found = sharding.full_state_dict(dict(policy.model.named_parameters()))
    return {name: value.detach().clone() for name, value in found.items()}


def test_each_full_parameter_recipe_of_the_papers_takes_a_step_that_moves_its_weights() -> None:
    full = {name: cfg for name, cfg in papers().items() if cfg.policy.lora.rank == 0}
    assert len(full) > 30
    assert all(cfg.rl.optimizer == "adamw" for cfg in full.values())
    assert all(cfg.policy.dtype == "bfloat16" for cfg in full.values())
    moved = {setting: _moves(*setting) for cfg in full.values() for setting in settings_of(cfg)}
    assert {setting[2] for setting in moved} == {1e-5, 1e-6}, "the papers' learning rates"
    for setting, kinds in moved.items():
        for kind, (changed, counted, rest) in kinds.items():
            assert changed >= 0.99 * counted, (setting, kind)
            assert counted > 100 and rest <= 0.01 * counted, (setting, kind)


@lru_cache
def _moves(
    dtype: str,
    frozen: bool,
    lr: float,
    decay: float,
    betas: tuple[float, float],
    clip: float,
) -> dict[str, tuple[int, int, int]]:
    """Count, of norms' and other weights, how many of those with |gradient| >= 1e-8, as the
    optimiser sees it, one step changes, how many there are, and how many others."""
    policy = placed(dtype, freeze_vision=frozen)
    before = whole(policy)
    optimizer = adamw(policy.model, lr, decay, betas)
    # the second group has an image
    backward(policy, groups_of(policy, SAMPLED, edited=False))
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), clip)
    named = policy.model.named_parameters()
    gradients = sharding.full_state_dict({n: p.grad for n, p in named if p.grad is not None})
    large = {n: g.abs() >= 1e-8 for n, g in gradients.items()}
    apply_step(optimizer, clip_gradients(policy.model.parameters(), 0.0), lr)
    after = whole(policy)
    found = {}
    for kind in ("norm", "other"):
        names = [n for n in large if ("norm" in n) == (kind == "norm")]
        changed = sum(int((after[n] != before[n])[large[n]].sum()) for n in names)
        counted = sum(int(large[n].sum()) for n in names)
        found[kind] = changed, counted, sum(large[n].numel() for n in names) - counted
    return found


def test_sixty_steps_go_as_far_as_those_of_fp32() -> None:
    apart = {}
    for dtype in (torch.float32, torch.bfloat16):
        policy = placed(dtype)
        start = whole(policy)
        optimizer = adamw(policy.model, 1e-6, 0.01)
        groups = groups_of(policy, SAMPLED[1:], edited=False)
        for _ in range(60):
            backward(policy, groups)
            apply_step(optimizer, clip_gradients(policy.model.parameters(), 1.0), 1e-6)
        end = whole(policy)
        apart[dtype] = torch.cat([(end[n] - start[n]).double().flatten() for n in start])
    wanted, found = apart[torch.float32], apart[torch.bfloat16]
    assert found.norm() >= 0.9 * wanted.norm()
    assert found @ wanted >= 0.9 * wanted.square().sum(), "and in the same direction"


TWIN = [
    *(
        "data.phantom.train=48",
        "data.phantom.val=4",
        "data.phantom.test=24",
        "data.phantom.size=56",
    ),
    *("data.phantom.templated=1", "data.phantom.thorough=1", "data.phantom.terse=0"),
    *("data.phantom.omit=0", *ALL_STUDIES, *SMALL_POLICY, "policy.warmup_steps=30"),
    *("sft.steps=80", "sft.batch=8", "sft.eval_every=80", "sft.lr=0.003", "sft.warmup=5"),
    *("rl.steps=4", "rl.prompts=4", "rl.group=4", "rl.eval_every=4", "rl.max_new_tokens=40"),
    *("eval.max_new_tokens=48", "eval.batch=24", "eval.bootstrap=200", "log.records=0"),
    "eval.meteor=false",
]


def test_a_demo_in_bf16_learns_as_its_twin_in_fp32(tmp_path: Path) -> None:
    systems, losses = {}, {}
    for dtype in ("float32", "bfloat16"):
        home = tmp_path / dtype
        done = command("demo", "--out", "run", *TWIN, f"policy.dtype={dtype}", cwd=home)
        assert done.status == 0, done.err
        systems[dtype] = json.loads((home / "run" / "summary.json").read_text())["systems"]
        metrics = read_metrics(home / "run" / "metrics.jsonl")
        losses[dtype] = [row["loss"] for row in metrics if row["phase"] == "sft"]
    for name, system in systems["float32"].items():
        wanted = system["metrics"]["micro_f1"]
        # who has learned nothing finds nothing
        assert wanted["low"] > 0, name
        found = systems["bfloat16"][name]["metrics"]["micro_f1"]["value"]
        assert wanted["low"] <= found <= wanted["high"], name
    assert losses["float32"][-1] < losses["float32"][0] / 5
    assert losses["bfloat16"][-1] == pytest.approx(losses["float32"][-1], rel=0.1)
    assert losses["bfloat16"] != losses["float32"], "the twins are not one run"
