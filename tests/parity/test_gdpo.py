"""Advantages of GDPO (`rl.combine=gdpo`) against TRL 1.16's and verl 0.9.1's own."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from rrgdata.study import Study
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests.parity.padded import peer

trainer = peer("trl.trainer.grpo_trainer")
core = peer("verl.trainer.ppo.core_algos")

GROUPS, MEMBERS = 5, 4
WEIGHTS = {"label_f1": 1.0, "match": 0.5, "severity": 2.0}


def terms_of(seed: int) -> Tensor:
    """[S, K] rewards; one group is flat in one term, one in all."""
    rewards = torch.rand(GROUPS * MEMBERS, len(WEIGHTS), generator=torch.manual_seed(seed))
    rewards[:MEMBERS, 0] = 0.25
    rewards[MEMBERS : 2 * MEMBERS] = 0.5
    rewards[:, 2] *= 0.01
    return rewards


def ours(rewards: Tensor, lengths: list[int], whiten: str) -> Tensor:
    """[S] advantages of `rl.combine=gdpo`."""
    study, groups = Study("s", "train", "", None, ()), []
    rows = rewards.double().tolist()
    for g in range(GROUPS):
        own = range(g * MEMBERS, (g + 1) * MEMBERS)
        drawn = [
            Member(
                torch.zeros(lengths[i], dtype=torch.int64),
                "",
                terms=dict(zip(WEIGHTS, rows[i], strict=True)),
            )
            for i in own
        ]
        groups.append(Group(g, study, None, tuple(drawn)))
    options = [f"reward.terms.{name}={weight}" for name, weight in WEIGHTS.items()]
    options += ["rl.algorithm=grpo", "rl.combine=gdpo", "rl.std=sample", f"rl.whiten={whiten}"]
    options += ["reward.terms.entity_f1=0"]
    algorithm = build_algorithm(load_config(Recipe, None, options))
    return algorithm.advantages(groups, torch.zeros(len(rows), dtype=torch.float64))


def by_trl(rewards: Tensor) -> Tensor:
    """[S]: the branch of `_generate_and_score_completions` on several rewards, run as it stands."""
    source = textwrap.dedent(inspect.getsource(trainer.GRPOTrainer._generate_and_score_completions))
    branch = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and "multi_objective_aggregation" in ast.unparse(node.test)
    )
    names = {
        "self": SimpleNamespace(
            multi_objective_aggregation="normalize_then_sum",
            reward_funcs=list(WEIGHTS),
            reward_weights=torch.tensor(list(WEIGHTS.values()), dtype=rewards.dtype),
        ),
        "rewards_per_func": rewards,
        "num_generations": MEMBERS,
        "device": rewards.device,
        "unscorable_mask": rewards.isnan().all(1),
        "torch": torch,
        "nanstd": trainer.nanstd,
    }
    exec(compile(ast.Module([branch], []), "trl", "exec"), names)
    return names["advantages"]


def by_verl(rewards: Tensor, lengths: list[int]) -> Tensor:
    """[S], at the first token of each response, of which all have the same."""
    count, prompt = len(lengths), 2
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).float()
    advantages, _ = core.compute_gdpo_outcome_advantage(
        torch.zeros_like(mask),
        mask,
        np.repeat(np.arange(GROUPS), MEMBERS),
        config={
            "gdpo_reward_keys": list(WEIGHTS),
            "gdpo_reward_weights": list(WEIGHTS.values()),
        },
        non_tensor_batch=dict(zip(WEIGHTS, rewards.T.numpy(), strict=True)),
        batch={
            "prompts": torch.zeros(count, prompt),
            "attention_mask": torch.cat([torch.ones(count, prompt), mask], 1).long(),
        },
    )
    assert torch.equal(advantages, advantages[:, :1] * mask)
    return advantages[:, 0]


@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_those_of_trl_and_verl(seed: int) -> None:
    rewards = terms_of(seed)
    lengths = torch.randint(2, 30, (len(rewards),), generator=torch.manual_seed(seed)).tolist()
    wanted = by_trl(rewards.double())
    torch.testing.assert_close(
        ours(rewards, lengths, "sequence").double(), wanted, rtol=1e-6, atol=1e-7
    )
    # verl computes in fp32
    found = ours(rewards, lengths, "token")
    torch.testing.assert_close(found, by_verl(rewards, lengths), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, wanted.float(), atol=1e-2)
