"""OraPO's whole loss at ratio 1 is token advantages: autograd, closed form, policy loss agree."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern import PolicyLoss, group_advantages, oracle_pairs, policy_loss, preference_advantages
from tests.rrgkern.device import DEVICE

TAU, LIMIT = 0.1, 12
PROMPTS, MEMBERS = 3, 4


@dataclass(frozen=True)
class Step:
    """PROMPTS groups of MEMBERS samples and an oracle, which stands at another place in each."""

    logps: Tensor
    ref: Tensor
    offsets: Tensor
    rewards: Tensor
    is_oracle: Tensor
    group_offsets: Tensor
    mixing: Tensor  # OraPO's w, one per prompt


def step(seed: int) -> Step:
    generator = torch.Generator().manual_seed(seed)
    sequences = PROMPTS * (MEMBERS + 1)
    lengths = torch.randint(1, LIMIT + 1, (sequences,), generator=generator)
    lengths[3] = 0
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    is_oracle = torch.zeros(sequences, dtype=torch.bool)
    is_oracle[[4, 5, 12]] = True
    tokens = int(offsets[-1])
    logps = -3 * torch.rand(tokens, generator=generator, dtype=torch.float64)
    ref = -3 * torch.rand(tokens, generator=generator, dtype=torch.float64)
    rewards = torch.rand(sequences, generator=generator, dtype=torch.float64)
    rewards[10:15] = 0.0  # a group that failed as a whole
    cpu = (logps, ref, offsets, rewards, is_oracle, torch.arange(0, sequences + 1, MEMBERS + 1))
    mixing = torch.tensor([0.05, 0.08, 0.15], dtype=torch.float64)
    return Step(*(tensor.to(DEVICE) for tensor in (*cpu, mixing)))


def written_out(data: Step, logps: Tensor) -> Tensor:
    """Mean over prompts of (1 - w) GRPO + w LN-DPO, each group and report by itself."""
    total = logps.new_zeros(())
    size = MEMBERS + 1
    for prompt, w in enumerate(data.mixing):
        reports = range(prompt * size, (prompt + 1) * size)
        tokens = [slice(int(data.offsets[i]), int(data.offsets[i + 1])) for i in reports]
        (oracle,) = (j for j, i in enumerate(reports) if data.is_oracle[i])
        members = [j for j in range(size) if j != oracle]
        rewards = data.rewards[[reports[j] for j in members]]
        grpo = logps.new_zeros(())
        for j, advantage in zip(members, rewards - rewards.mean(), strict=True):
            ratio = (logps[tokens[j]] - logps[tokens[j]].detach()).exp()
            clipped = ratio.clamp(0.8, 1.2)
            grpo -= torch.minimum(ratio * advantage, clipped * advantage).sum() / LIMIT

        def reward(j: int, tokens: list[slice] = tokens) -> Tensor:
            gain = (logps - data.ref)[tokens[j]]
            return TAU * gain.sum() / max(len(gain), 1)

        dpo = -torch.stack([F.logsigmoid(reward(oracle) - reward(j)) for j in members]).mean()
        total = total + (1 - w) * grpo / MEMBERS + w * dpo
    return total / PROMPTS


def closed_form(data: Step) -> tuple[Tensor, Tensor]:
    """[N] token advantages of both terms together, and DPO's [S]."""
    lengths = data.offsets.diff()
    group = torch.arange(PROMPTS, device=DEVICE).repeat_interleave(MEMBERS + 1)
    grpo = group_advantages(data.rewards, data.group_offsets, valid=~data.is_oracle).double()
    dpo = preference_advantages(
        data.logps,
        data.ref,
        data.offsets,
        oracle_pairs(data.is_oracle, data.group_offsets, prompt_weight=data.mixing / PROMPTS),
        tau=TAU,
    )
    share = (1 - data.mixing)[group] / (PROMPTS * MEMBERS * LIMIT)
    token = grpo * share + dpo / lengths.clamp(min=1)
    return token.repeat_interleave(lengths), dpo


@pytest.mark.parametrize("seed", range(3))
def test_the_whole_loss_is_token_advantages(seed: int) -> None:
    data = step(seed)
    logps = data.logps.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(written_out(data, logps), logps)
    assert by_autograd.any()

    advantages, _ = closed_form(data)
    # group_advantages rounds to fp32.
    torch.testing.assert_close(by_autograd, -advantages, rtol=1e-6, atol=1e-10)

    ones = torch.ones(len(data.offsets) - 1, dtype=torch.float64, device=DEVICE)
    primitive = policy_loss(logps, advantages, data.offsets, scale=ones, spec=PolicyLoss())
    (gradient,) = torch.autograd.grad(primitive.loss, logps)
    torch.testing.assert_close(gradient, by_autograd, rtol=1e-6, atol=1e-10)


def test_advantages_are_orapos() -> None:
    """The oracle is paid +tau mean_k σ(-m_k), member k pays tau σ(-m_k) / K."""
    data = step(5)
    pairs = oracle_pairs(
        data.is_oracle, data.group_offsets, prompt_weight=torch.ones_like(data.mixing)
    )
    got = preference_advantages(data.logps, data.ref, data.offsets, pairs, tau=TAU)
    gains = (data.logps - data.ref).cpu()
    lengths = data.offsets.diff().cpu()
    means = torch.stack([part.sum() / max(len(part), 1) for part in gains.split(lengths.tolist())])
    groups = means.view(PROMPTS, -1)
    expected = torch.zeros_like(groups)
    for row, oracle in enumerate(data.is_oracle.view(PROMPTS, -1).int().argmax(1).tolist()):
        pull = torch.sigmoid(-TAU * (groups[row, oracle] - groups[row]))
        expected[row] = -TAU * pull / MEMBERS
        others = [j for j in range(MEMBERS + 1) if j != oracle]
        expected[row, oracle] = TAU * pull[others].mean()
    torch.testing.assert_close(got.cpu(), expected.flatten(), rtol=1e-12, atol=1e-15)
    # What the oracle gains the members lose.
    torch.testing.assert_close(got.view(PROMPTS, -1).sum(1).cpu(), torch.zeros(PROMPTS).double())
