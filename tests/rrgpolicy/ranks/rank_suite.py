"""Compute on two ranks what one process computes, for `test_scale_ranks`.

Each process first computes the whole batch alone, then joins the other and computes its share.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rrgkern import PreferencePairs
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora, training_only
from rrgpolicy.ranks import ranks, sharding
from rrgtrain.algorithms import Group
from rrgtrain.algorithms.base import loss_of
from rrgtrain.algorithms.group import Objective, Preference, members
from rrgtrain.schema import LoraSettings, RlSettings
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw, apply_step, clip_gradients
from rrgtrain.train.reference import reference_of
from rrgtrain.train.sft import own_share, read_losses, sft_gradients
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_directory, tiny_policy
from tests.rrgpolicy.model.sighted import checkpoint
from tests.rrgtrain.common import accumulate, groups_of, recipe, rollout_logps, studies, unscored

AGGREGATIONS = ("grpo", "bnpo", "dapo", "dr_grpo", "sum")


@dataclass(frozen=True)
class Found:
    """Hold what one case gave: loss, metrics, gradients by name (those a parameter has)."""

    loss: float
    metrics: dict[str, float]
    gradients: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """`sampled` reports of each group; ranks take the groups in turn.

    `cut`: the first of each group has no end, and is masked.
    """

    sampled: tuple[tuple[str, ...], ...]
    overrides: tuple[str, ...] = ()
    oracle: bool = False
    fixed: bool = False
    in_one: bool = False
    cut: bool = False


THREE = ((REPORTS[0], REPORTS[1], REPORTS[2]), (REPORTS[3], REPORTS[0]), (REPORTS[2], REPORTS[1]))
CASES = {
    **{f"three groups, {a}": Case(THREE, (f"rl.aggregation={a}",)) for a in AGGREGATIONS},
    **{
        f"cut reports, {a}": Case(THREE, (f"rl.aggregation={a}", "rl.token_budget=1"), cut=True)
        for a in AGGREGATIONS
    },
    "one group for two ranks": Case(THREE[:1]),
    "a group a micro-batch": Case(THREE, ("rl.token_budget=1", "rl.aggregation=bnpo")),
    "KL to a reference": Case(THREE, ("rl.beta=0.1", "rl.token_budget=1")),
    "oracle": Case(THREE, ("rl.aggregation=grpo",), oracle=True),
    "old log-probabilities": Case(THREE, ("rl.epochs=2", "rl.token_budget=1"), fixed=True),
}


def objective_of(groups: list[Group], case: Case) -> Objective:
    """Advantages that differ; with `oracle`, a pair in every group but the first."""
    count = len(members(groups))
    advantages = torch.linspace(-1.0, 1.0, count)
    if not case.oracle:
        return Objective(advantages)
    starts = torch.tensor([0, *(len(g.members) for g in groups)]).cumsum(0)[1:-1]
    weight = torch.linspace(0.1, 0.3, len(starts))
    pairs = PreferencePairs(starts, starts + 1, weight)
    return Objective(advantages, preference=Preference(pairs), logs_gradient_ratio=True)


def computed(policy: Policy, reference: Policy | None, groups: list[Group], case: Case) -> Found:
    whole = recipe(*case.overrides)
    settings: RlSettings = whole.rl
    objective, spec = objective_of(groups, case), loss_of(whole.rl, whole.rollout)
    kept = reference if case.oracle or settings.beta > 0 else None
    fixed = rollout_logps(policy, kept, groups, objective, spec, settings) if case.fixed else None
    update = accumulate(
        *(policy, kept, groups, objective, spec, settings), fixed=fixed, read_logps=not case.in_one
    )
    return Found(update.loss, update.metrics, taken(policy))


def taken(policy: Policy) -> dict[str, torch.Tensor]:
    """The gradients, which are cleared; whole on rank 0."""
    parameters = dict(policy.model.named_parameters())
    found = sharding.full_state_dict(
        {n: p.grad for n, p in parameters.items() if p.grad is not None}
    )
    policy.model.zero_grad(set_to_none=True)
    return {name: value.clone() for name, value in found.items()} if ranks.is_main() else {}


def each_group_on_its_rank(groups: list[Group]) -> list[Group]:
    return [replace(group, rank=b % ranks.size()) for b, group in enumerate(groups)]


def pair(mode: str, policy: Policy) -> Policy:
    reference = reference_of(policy, shares=mode != "fsdp2")
    if reference.model is not policy.model:
        trained = {n for n, p in policy.model.named_parameters() if p.requires_grad}
        with torch.no_grad():
            for name, parameter in reference.model.named_parameters():
                parameter.mul_(1.1 if name in trained else 1.0)
    return reference


def updates(mode: str) -> dict[str, Found]:
    """Every case in fp64."""
    policy = tiny_policy(dtype=torch.float64)
    reference = pair(mode, policy)
    sharding.setup(mode, policy, reference)
    found = {}
    for name, case in CASES.items():
        groups = each_group_on_its_rank(groups_of(policy, case.sampled, edited=True))
        if case.cut:
            groups = [replace(g, members=(unscored(g.members[0]), *g.members[1:])) for g in groups]
        found[name] = computed(policy, reference, groups, case)
    return found


def variants(mode: str) -> dict[str, Found]:
    """One batch in bf16 from fp32 masters, with layers recomputed, and with an adapter beside its
    base."""
    found = {}
    options: dict[str, dict] = {
        "bf16": {"dtype": torch.bfloat16, "masters": True},
        "checkpointing": {"dtype": torch.float64, "gradient_checkpointing": True},
        "LoRA": {"dtype": torch.float64},
        "LoRA, head and loss in one": {"dtype": torch.float64},
        "frozen tower": {"dtype": torch.float64, "freeze_vision": True},
        "bf16, frozen tower": {"dtype": torch.bfloat16, "masters": True, "freeze_vision": True},
        "LoRA in bf16": {"dtype": torch.bfloat16},
    }
    for name, chosen in options.items():
        policy = tiny_policy(**chosen)
        if name.startswith("LoRA"):
            add_lora(policy, LoraSettings(rank=2, dropout=0.0), 0)
        policy.model.train()
        reference = pair(mode, policy)
        sharding.setup(mode, policy, reference)
        groups = each_group_on_its_rank(groups_of(policy, THREE, edited=False))
        case = Case(THREE, ("rl.beta=0.1",))
        if name.endswith("in one"):  # three micro-batches: one rank keeps the other company
            case = Case(THREE, (*case.overrides, "rl.token_budget=1"), in_one=True)
        found[name] = computed(policy, reference, groups, case)
    return found


def tuning(mode: str) -> dict[str, Found]:
    """Supervised fine-tuning, and what a step of the optimiser makes of the weights."""
    found = {}
    for name, budget, count in (
        ("whole", None, 3),
        ("micro-batches", 1, 5),
        ("one study", None, 1),
    ):
        policy = tiny_policy(dtype=torch.float64)
        sharding.setup(mode, policy)
        settings = replace(recipe().sft, token_budget=budget)
        batch = studies(count)
        prompts = PromptLoader(policy, "short").batch(own_share(batch))
        losses, tokens = sft_gradients(policy, prompts, batch, settings)
        optimizer = adamw(policy.model, 1e-2, 0.01)
        clipped = clip_gradients(policy.model.parameters(), 0.1)
        loss, norm = read_losses(losses, clipped, 0)
        apply_step(optimizer, norm, 1e-2)
        weights = sharding.full_state_dict(dict(policy.model.named_parameters()))
        whole = {n: w.detach().clone() for n, w in weights.items()} if ranks.is_main() else {}
        found[f"sft, {name}"] = Found(loss, {"tokens": tokens, "norm": norm}, whole)
    return found


VIEWS: dict[str, tuple[tuple[int, ...], int | None, bool]] = {
    "a rank idles": ((1, 1, 1), 1, False),
    "a rank without images": ((1, 0, 1, 0), 1, True),
    "images of one of four": ((1, 0, 0, 0), None, False),
    "a rank without studies": ((1,), None, False),
}
"""Images of each study of a batch, whose ranks take turns; tokens of a row; checkpointing."""
EYES = {
    "packed": ("tiny", "row"),
    "a row": ("qwen3_vl", "row"),
    "a cache": ("qwen3_vl", "cache"),
    "a cache of states": ("qwen3_5", "cache"),
    "none": ("qwen3_vl", "none"),
}
"""Ways in which a tower that trains alone sends its images through the decoder."""


def towers(mode: str) -> dict[str, Found]:
    """Fine-tuning of the vision tower alone, where ranks differ in who has an image to read."""
    found = {}
    for (way, (family, sharing)), (case, settings_of) in itertools.product(
        EYES.items(), VIEWS.items()
    ):
        views, budget, checkpointing = settings_of
        options: dict[str, Any] = {"dtype": torch.float64, "gradient_checkpointing": checkpointing}
        tiny = family == "tiny"
        policy = tiny_policy(**options) if tiny else load_policy(checkpoint(family), **options)
        policy.sharing = sharing
        policy.model.train()
        with training_only(policy, "vision"):
            sharding.setup(mode, policy)
            batch = studies(len(views))
            prompts = [prompt(policy, study.id, n) for study, n in zip(batch, views, strict=True)]
            settings = replace(recipe("sft.train=vision").sft, token_budget=budget)
            own = ranks.shard(prompts) or prompts[:1]
            losses, tokens = sft_gradients(policy, own, batch, settings)
            loss, _ = read_losses(losses, torch.zeros(()), 0)
            found[f"{way}, {case}"] = Found(loss, {"tokens": tokens}, taken(policy))
    return found


FAMILIES = {
    "a row": ("qwen3_vl", "row"),
    "a cache": ("qwen3_5", "cache"),
    "a cache, text": ("mistral", "cache"),
    "none": ("qwen3", "none"),
}
"""Ways of sharing, each with a family whose images or layers go that way."""


def families(mode: str) -> dict[str, Found]:
    """Both loops of other families, whose ranks have unequal numbers of groups and of members."""
    found = {}
    for name, (family, way) in FAMILIES.items():
        for loop in ("rl", "sft"):
            policy = load_policy(checkpoint(family), dtype=torch.float64)
            policy.sharing = way
            policy.model.train()
            sharding.setup(mode, policy)
            if loop == "rl":
                groups = groups_of(policy, THREE, edited=True, images=policy.sees_images)
                case = Case(THREE, ("rl.beta=0", "rl.token_budget=300"))
                found[f"{name}, {loop}"] = computed(
                    policy, None, each_group_on_its_rank(groups), case
                )
                continue
            batch = studies(3)
            views = [1, 0, 2] if policy.sees_images else [0, 0, 0]
            prompts = [prompt(policy, s.id, n) for s, n in zip(batch, views, strict=True)]
            settings = replace(recipe().sft, token_budget=None)
            losses, tokens = sft_gradients(policy, ranks.shard(prompts), batch, settings)
            loss, _ = read_losses(losses, torch.zeros(()), 0)
            found[f"{name}, {loop}"] = Found(loss, {"tokens": tokens}, taken(policy))
    return found


SUITES: dict[str, Callable[[str], dict[str, Found]]] = {
    "families": families,
    "updates": updates,
    "variants": variants,
    "tuning": tuning,
    "towers": towers,
}


def main(words: list[str]) -> int:
    """words: mode, file to which rank 0 writes {suite: (alone, together)}, and suites."""
    mode, out, *names = words
    world = {n: os.environ.pop(n) for n in ("RANK", "WORLD_SIZE")}
    alone = {n: SUITES[n]("none") for n in names} if world["RANK"] == "0" else {}
    ranks.close()  # the world of one in which bf16 was computed alone
    # transformers writes no checkpoint on ranks other than 0
    for family, _ in (*FAMILIES.values(), *EYES.values()):
        if family != "tiny":
            checkpoint(family)
    tiny_directory()
    os.environ.update(world)
    with ranks.opened(mode, 300.0, cuda=False), ranks.propagate_errors():
        both = {name: SUITES[name](mode) for name in names}
    if ranks.is_main():
        found = {name: (alone[name], both[name]) for name in names}
        Path(out).write_bytes(pickle.dumps(found))
    ranks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
