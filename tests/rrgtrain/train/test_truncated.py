"""Reports that the limit cuts: `rl.truncated=mask` leaves them out of everything but the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgreport.run_files import read_metrics
from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService
from rrgtrain.state.rundir import RunDir
from rrgtrain.train import Batch
from rrgtrain.train.rl import train_rl
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgtrain.common import (
    accumulate,
    gradients,
    groups_of,
    policy_and_prompts,
    recipe,
    rollout_logps,
    run_of,
    sampled,
    studies,
    unscored,
)

TEXTS = [
    [REPORTS[0], "There is no pneumo", "No effusion."],
    ["Edema.", REPORTS[3]],
    ["Clear lungs.", "Heart.", "Small left ple"],
]
CUT = {(0, 1), (2, 2)}
REWARDS = [0.3, 0.9, 0.0, 0.4, 0.7, 0.2]
# How a batch is put together, and what of the loss counts reports or tokens.
VARIANTS = [
    *(("dr_grpo", f"rl.aggregation={a}") for a in ("grpo", "bnpo", "dapo", "dr_grpo", "sum")),
    ("dr_grpo", "rl.aggregation=grpo", "rl.beta=0.1"),
    ("dr_grpo", "rl.aggregation=dapo", "rl.ratio_level=sequence", "rl.epochs=2"),
    ("ditpo", "rl.aggregation=grpo", "token_weights.kind=tfidf"),
    ("orapo", "rl.aggregation=dr_grpo"),
    ("orapo", "rl.aggregation=bnpo", "oracle.loss=sft", "rl.beta=0.1"),
]


def with_and_without() -> tuple[list[Group], list[Group]]:
    """The same groups, their cut reports masked, and without them."""
    groups = groups_of(tiny_policy(), TEXTS, edited=False)
    masked, left = [], []
    for b, group in enumerate(groups):
        own = list(enumerate(group.members))
        masked.append(
            replace(group, members=tuple(unscored(m) if (b, k) in CUT else m for k, m in own))
        )
        left.append(replace(group, members=tuple(m for k, m in own if (b, k) not in CUT)))
    return masked, left


def test_a_masked_report_is_as_one_that_was_never_drawn() -> None:
    """In loss, gradient, and tokens, with each aggregation and however the batch is cut."""
    policy, reference = (tiny_policy(dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.05)
    wrong = []
    for name, *words in VARIANTS:
        found = []
        for budget in (1, 16384):
            cfg = recipe(f"rl.algorithm={name}", f"rl.token_budget={budget}", *words)
            for groups in with_and_without():
                algorithm = build_algorithm(cfg)
                whole = algorithm.complete(groups, 0, policy.codec.reencode_from)[0]
                rewards = Batch(whole, scores={"total": np.array(REWARDS)}).rewards
                objective = algorithm.advantages(whole, rewards)
                kept = reference if cfg.rl.beta or algorithm.needs_reference else None
                given = (policy, kept, whole, objective, algorithm.loss, cfg.rl)
                fixed = rollout_logps(*given) if cfg.rl.epochs > 1 else None
                update = accumulate(*given, fixed=fixed)
                found.append((update.loss, update.tokens, gradients(policy)))
        for loss, tokens, grown in found[1:]:
            first = found[0]
            same = grown.keys() == first[2].keys() and all(
                torch.allclose(g, first[2][n], rtol=1e-9, atol=1e-12) for n, g in grown.items()
            )
            if loss != pytest.approx(first[0], rel=1e-9) or tokens != first[1] or not same:
                wrong.append((name, *words))
    assert not wrong
    assert any(g.any() for g in grown.values())


@pytest.mark.parametrize("treatment", ["score", "mask"])
def test_the_limit_cuts_and_the_setting_says_what_becomes_of_it(treatment: str) -> None:
    policy, prompts = policy_and_prompts()
    cfg = recipe("rl.algorithm=dr_grpo", f"rl.truncated={treatment}", "rl.max_new_tokens=3")
    drawn = sampled(run_of(policy, prompts, studies(3), cfg), [0, 1, 2], 0)
    ends = [(m.finished, m.scored) for group in drawn for m in group.members]
    assert (False, treatment == "score") in ends
    assert all(scored == (finished or treatment == "score") for finished, scored in ends)


@pytest.mark.parametrize("algorithm", ["dr_grpo", "editgrpo", "orapo", "ditpo"])
def test_steps_in_which_every_report_is_cut_go_on(algorithm: str, tmp_path: Path) -> None:
    policy, prompts = policy_and_prompts()
    policy.eos_ids = (10**9,)  # nothing ends
    words = ["rl.truncated=mask", "rl.beta=0.01", "rl.aggregation=dapo"]
    cfg = recipe(f"rl.algorithm={algorithm}", "token_weights.kind=tfidf", *words)
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as log:
        fields = {"rewards": RewardService(cfg.reward), "out": run.checkpoints / "rl", "log": log}
        judged = {"micro_f1_13": 0.5}
        train_rl(run_of(policy, prompts, studies(5), cfg, validate=lambda: judged, **fields))
    rows = [row for row in read_metrics(run.metrics) if row["phase"] == algorithm]
    assert len(rows) == 2 and all(row["unfinished"] == 1.0 for row in rows)
    assert not any(np.isnan(v) for row in rows for v in row.values() if isinstance(v, float))
