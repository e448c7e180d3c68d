"""Studies, groups and recipes small enough that a training step takes milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from rrgclinical import build_labeller
from rrgdata.phantom import PhantomConfig, write_phantom
from rrgdata.study import Study
from rrgkern import PolicyLoss
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Group, Member, Objective, build_algorithm
from rrgtrain.config import load_config
from rrgtrain.log.logs import NoLog
from rrgtrain.schema import Recipe, RlSettings
from rrgtrain.state.remembered import to_remember, write_remembered
from rrgtrain.train import Batch, Gradients, accumulate_gradients, sample_groups, with_rollout_logps
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.rl_run import RlRun
from rrgtrain.train.sft import SftRun
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_policy

REFERENCES = (
    *REPORTS,
    "Large right pneumothorax. The heart is normal in size.",
    "No focal consolidation. Small right pleural effusion. Mild edema.",
    "Healed left rib fracture. No acute disease.",
)


def studies(count: int, split: str = "train") -> list[Study]:
    """Studies of text alone, with the labels that the rules read in their reports."""
    texts = [REFERENCES[i % len(REFERENCES)] for i in range(count)]
    labels = build_labeller("rules").label(texts).tolist()
    return [
        Study(f"{split}-{i}", split, text, tuple(row), (), indication="dyspnea" * (i % 3))
        for i, (text, row) in enumerate(zip(texts, labels, strict=True))
    ]


def recipe(*overrides: str) -> Recipe:
    """The schema's defaults at the size of a test, then `overrides`."""
    small = ["rl.prompts=3", "rl.group=4", "rl.max_new_tokens=12", "rl.steps=2", "rl.beta=0"]
    small += ["rl.eval_every=2", "sft.steps=4", "sft.batch=3", "sft.eval_every=2", "sft.warmup=0"]
    small += ["eval.max_new_tokens=12", "eval.bootstrap=20", "eval.meteor=false"]
    return load_config(Recipe, None, [*small, *overrides])


def policy_and_prompts() -> tuple[Policy, PromptLoader]:
    policy = tiny_policy()
    return policy, PromptLoader(policy, "short")


def member(policy: Policy, text: str, origin: str = "sampled", **fields: object) -> Member:
    return Member(policy.codec.encode(text), text, origin, **fields)  # type: ignore[arg-type]


def unscored(of: Member) -> Member:
    """The report as one that the limit cut and `rl.truncated=mask` masks."""
    return replace(of, finished=False, scored=False)


def groups_of(
    policy: Policy, sampled: Sequence[Sequence[str]], *, edited: bool, images: bool = True
) -> list[Group]:
    """A group for each list of sampled reports; prompts of unequal length, with and without image
    (or all without).

    With `edited`, every other report also has an edit: so some groups have members that others
    lack.
    """
    made = []
    for g, texts in enumerate(sampled):
        study = studies(g + 1)[g]
        members = [member(policy, text) for text in texts]
        for k, text in enumerate(texts):
            if edited and (g + k) % 2 == 0:
                changed = f"{text} {REFERENCES[g % len(REFERENCES)]}"
                members.append(member(policy, changed, "edited", parent=k))
        views = g % 3 if images else 0
        encoded = prompt(policy, "s" * (g + 1), views, indication="dyspnea" * g)
        made.append(Group(10 + g, study, encoded, tuple(members)))
    return made


def accumulate(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    objective: torch.Tensor | Objective,
    loss: PolicyLoss,
    settings: RlSettings,
    *,
    fixed: Batch | None = None,
    read_logps: bool = True,
) -> Gradients:
    """The gradient of groups with an objective; `old` and `ref` are those of `fixed`."""
    batch = Batch.of(groups, objective, settings)
    if fixed is not None:
        batch = replace(batch, old=fixed.old, ref=fixed.ref)
    done = accumulate_gradients(policy, reference, batch, loss, settings, read_logps=read_logps)
    return done.read()


def rollout_logps(
    policy: Policy,
    reference: Policy | None,
    groups: list[Group],
    objective: torch.Tensor | Objective,
    loss: PolicyLoss,
    settings: RlSettings,
) -> Batch:
    """A batch with the log-probabilities that several updates on it share."""
    batch = Batch.of(groups, objective, settings)
    return with_rollout_logps(policy, reference, batch, loss, settings)


def run_of(
    policy: Policy, prompts: PromptLoader, chosen: Sequence[Study], cfg: Recipe, **fields: Any
) -> RlRun:
    """A run that nothing is logged of; `fields` are those of `RlRun`."""
    given = {
        "algorithm": build_algorithm(cfg) if "algorithm" not in fields else None,
        "rewards": None,
        "validate": lambda: {},
        "out": Path("nowhere"),
        "log": NoLog(),
    }
    return rl_run(policy, prompts, chosen, cfg, **(given | fields))


def rl_run(
    policy: Policy,
    prompts: PromptLoader,
    chosen: Sequence[Study],
    cfg: Recipe,
    *rest: Any,
    **fields: Any,
) -> RlRun:
    """A run with the sections of `cfg`; `rest` are its algorithm, rewards, validation, out, log."""
    named = dict(zip(("algorithm", "rewards", "validate", "out", "log"), rest, strict=False))
    named |= {**of_recipe(cfg, (named | fields)["out"]), **fields}
    return RlRun(policy, prompts, chosen, cfg.rl, start=cfg.policy, rollout=cfg.rollout, **named)


def sft_run(
    policy: Policy,
    prompts: PromptLoader,
    chosen: Sequence[Study],
    cfg: Recipe,
    *rest: Any,
    **fields: Any,
) -> SftRun:
    """A fine-tuning with the sections of `cfg`; `rest` are its validation, out and log."""
    named = {**of_recipe(cfg, rest[1]), **fields}
    return SftRun(policy, prompts, chosen, cfg.sft, *rest, **named)


def of_recipe(cfg: Recipe, out: Path) -> dict[str, Any]:
    sections = {"scale": cfg.scale, "eval": cfg.eval, "reward": cfg.reward}
    trained_as = to_remember(cfg, out.parent.parent)
    return {**sections, "seed": cfg.seed, "trained_as": trained_as}


def remember(cfg: Recipe, directory: Path) -> None:
    """Write what a checkpoint in `directory` says of a training by `cfg`."""
    write_remembered(directory, to_remember(cfg, directory.parent))


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """The gradients that stand in the parameters, which are cleared."""
    found = {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}
    policy.model.zero_grad(set_to_none=True)
    return found


def sampled(run: RlRun, indices: Sequence[int], step: int, again: int = 0) -> list[Group]:
    """The groups that a run of one rank samples for the studies `indices`."""
    prompts = run.prompts.batch([run.studies[i] for i in indices])
    return sample_groups(run, indices, prompts, step, again)


@lru_cache(maxsize=1)
def phantoms() -> Path:
    """A phantom data set of the smallest useful size; not to be written to."""
    directory = Path(mkdtemp(prefix="phantoms-")) / "data"
    write_phantom(PHANTOM, directory)
    return directory


PHANTOM = PhantomConfig(train=8, val=3, test=4, size=56)
# Too few to choose among.
ALL_STUDIES = ["data.agreeing=false", "data.balanced=null"]
# The reports are PHANTOM's in every recipe.
OF_PHANTOM = [
    *(f"data.phantom.{k}={getattr(PHANTOM, k)}" for k in ("train", "val", "test", "size")),
    *(f"data.phantom.{k}={getattr(PHANTOM, k)}" for k in ("terse", "omit", "careful", "reported")),
    *ALL_STUDIES,
]
# A policy of 0.2 million parameters, trained for hardly a step, and judged without Java.
SMALL_POLICY = [
    "eval.meteor=false",
    "policy.width=64",
    "policy.layers=1",
    "policy.vision_layers=1",
    "policy.vocabulary=380",
    "policy.warmup_steps=1",
]
