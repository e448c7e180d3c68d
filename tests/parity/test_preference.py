"""DPO and LN-DPO of TRL 1.16 and Liger 0.8.5, and GDPO's advantages of TRL and verl 0.9.1."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from rrgdata.study import Study
from rrgkern import PreferencePairs, preference_loss
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests.parity.padded import FP64, Padded, Result, assert_same, padded, peer

BETA = 0.3


def batch(seed: int, dtype: torch.dtype = torch.float64) -> Padded:
    """Three chosen sequences, then the three that they are preferred to."""
    return padded(seed, dtype=dtype, empty=False)


def by_us(data: Padded, length_normalized: bool) -> Result:
    n = len(data.mask) // 2
    logps = data.logps.flatten().clone().requires_grad_()
    out = preference_loss(
        logps,
        data.ref.flatten(),
        torch.arange(0, data.mask.numel() + 1, data.limit),
        PreferencePairs(
            torch.arange(n), torch.arange(n, 2 * n), torch.full((n,), 1 / n, dtype=logps.dtype)
        ),
        tau=BETA,
        length_normalized=length_normalized,
        mask=data.mask.flatten(),
    )
    (gradient,) = torch.autograd.grad(out.loss, logps)
    metrics = {name: float(value) for name, value in out.metrics.items()}
    return Result(out.loss.detach(), gradient.view_as(data.mask), metrics)


def by_trl(data: Padded, loss_type: str) -> Result:
    trainer_class = peer("trl.trainer.dpo_trainer").DPOTrainer
    logps = data.logps.clone().requires_grad_()
    # One token of prompt, which TRL's shift by one leaves out.
    mask = torch.nn.functional.pad(data.mask, (1, 0))

    def outputs(values: Tensor) -> SimpleNamespace:
        # The model returns 0 where the labels say -100.
        return SimpleNamespace(
            log_probs=torch.where(data.mask, values, 0.0),
            entropy=data.entropy,
            mean_logits=torch.zeros_like(values),
            is_top1=torch.zeros_like(data.mask),
        )

    metrics: dict[str, list[float]] = defaultdict(list)
    trainer = SimpleNamespace(
        model=torch.nn.Module().eval(),
        ref_model=lambda **_: outputs(data.ref),
        accelerator=SimpleNamespace(
            device="cpu", gather=lambda values: values, gather_for_metrics=lambda values: values
        ),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=False,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        beta=BETA,
        label_smoothing=0.0,
        use_weighting=False,
        _metrics={"eval": metrics},
        _total_train_tokens=0,
    )
    trainer.model.is_gradient_checkpointing = False
    inputs = {"input_ids": mask.long(), "completion_mask": mask.long()}
    loss = trainer_class._compute_loss(trainer, lambda **_: outputs(logps), inputs, False)
    (gradient,) = torch.autograd.grad(loss, logps)
    logged = {name: values[-1] for name, values in metrics.items()}
    return Result(loss.detach(), gradient, logged)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("loss_type", "normalized"), [("sigmoid", False), ("sigmoid_norm", True)])
def test_trl(loss_type: str, normalized: bool, seed: int) -> None:
    data = batch(seed)
    mine, theirs = by_us(data, normalized), by_trl(data, loss_type)
    assert_same(mine, theirs, **FP64)
    if not normalized:
        for our_name, trl_name in {
            "reward_positive": "rewards/chosen",
            "reward_negative": "rewards/rejected",
            "margin": "rewards/margins",
            "accuracy": "rewards/accuracies",
        }.items():
            assert mine.metrics[our_name] == pytest.approx(theirs.metrics[trl_name], rel=1e-6)


@pytest.mark.parametrize("length_normalized", [False, True])
def test_liger(length_normalized: bool) -> None:
    function = peer("liger_kernel.chunked_loss.dpo_loss").LigerFusedLinearDPOFunction
    data = batch(4)
    logps = data.logps.clone().requires_grad_()
    lengths = data.mask.sum(1) if length_normalized else torch.ones(len(data.mask))

    def halves(values: Tensor) -> tuple[Tensor, ...]:
        return (torch.where(data.mask, values, 0.0).sum(1) / lengths).chunk(2)

    (chosen, rejected), (ref_chosen, ref_rejected) = halves(logps), halves(data.ref)
    loss, *_ = function.preference_loss_fn(
        chosen, rejected, data.mask, ref_chosen, ref_rejected, beta=BETA
    )
    (gradient,) = torch.autograd.grad(loss, logps)
    assert_same(by_us(data, length_normalized), Result(loss.detach(), gradient, {}), **FP64)


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


def advantages_by_us(rewards: Tensor, lengths: list[int], whiten: str) -> Tensor:
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


def advantages_by_trl(rewards: Tensor) -> Tensor:
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


def advantages_by_verl(rewards: Tensor, lengths: list[int]) -> Tensor:
    """[S], at the first token of each response, of which all have the same."""
    count, prompt = len(lengths), 2
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).float()
    advantages, _ = core.compute_gdpo_outcome_advantage(
        torch.zeros_like(mask),
        mask,
        np.repeat(np.arange(GROUPS), MEMBERS),
        config={"gdpo_reward_keys": list(WEIGHTS), "gdpo_reward_weights": list(WEIGHTS.values())},
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
    wanted = advantages_by_trl(rewards.double())
    torch.testing.assert_close(
        advantages_by_us(rewards, lengths, "sequence").double(), wanted, rtol=1e-6, atol=1e-7
    )
    # verl computes in fp32
    found = advantages_by_us(rewards, lengths, "token")
    torch.testing.assert_close(found, advantages_by_verl(rewards, lengths), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, wanted.float(), atol=1e-2)
