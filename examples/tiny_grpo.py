"""The parts of GRPO that a loop of your own calls: a loss to wrap, and rewarded reports.

`accelerate_loop.py` and `lightning_loop.py` train it. No weights, no data: words are tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from rrgkern import PolicyLoss, group_advantages, loss_scale, policy_loss
from rrgpolicy.model import shared_prefix_logps
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

WORDS = ["<pad>", "<eos>", "small", "left", "right", "pleural", "effusion", "pneumothorax"]
WORDS += ["no", "edema", "."]
PAD, EOS, GROUP, LONGEST = 0, 1, 8, 8
PROMPTS = [[2, 3], [2, 4], [3, 5], [4, 5]]
REFERENCES = ["small left pleural effusion .", "right pneumothorax .", "edema .", "no edema ."]
STUDIES = list(zip(map(torch.tensor, PROMPTS), REFERENCES, strict=True))
SPEC = PolicyLoss(surrogate="clip", eps_low=0.2, eps_high=0.28)


class Loss(nn.Module):
    """Policy and loss in one forward, so that what wraps a module for several GPUs is called."""

    def __init__(self) -> None:
        super().__init__()
        sizes: Any = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
        config = Qwen2Config(vocab_size=len(WORDS), **sizes)
        self.model = Qwen2ForCausalLM(config)

    def forward(
        self, prompts: list[Tensor], reports: list[list[Tensor]], advantages: Tensor
    ) -> Tensor:
        """Compute the loss of the reports of each prompt; advantages: [reports]."""
        rows = shared_prefix_logps(self.model, [{"input_ids": p} for p in prompts], reports)
        scale = loss_scale("dr_grpo", rows.offsets, max_length=LONGEST)
        return policy_loss(rows.logps, advantages, rows.offsets, scale=scale, spec=SPEC).loss


class Rollout(NamedTuple):
    """What `Loss` takes, and the mean reward."""

    prompts: list[Tensor]
    reports: list[list[Tensor]]
    advantages: Tensor
    reward: float


@torch.no_grad()
def roll_out(
    policy: PreTrainedModel, studies: list[tuple[Tensor, str]], service: RewardService
) -> Rollout:
    """Sample a group of reports for each study's prompt, and reward them."""
    prompts = [prompt.to(policy.device) for prompt, _ in studies]
    reports = []
    for prompt in prompts:
        options = dict(do_sample=True, top_k=0, eos_token_id=EOS, pad_token_id=PAD)
        model: Any = policy
        rows = model.generate(prompt.expand(GROUP, -1), max_new_tokens=LONGEST, **options)
        rows = rows[:, len(prompt) :]
        # up to the end token, which is scored too
        reports.append([row[: int((row != EOS).cumprod(0).sum()) + 1] for row in rows])
    texts = [" ".join(WORDS[i] for i in r if i > EOS) for group in reports for r in group]
    rewards = service(texts, [reference for _, reference in studies for _ in range(GROUP)])
    totals = torch.tensor(rewards["total"], dtype=torch.float32)
    advantages = group_advantages(totals, torch.arange(0, len(texts) + 1, GROUP))
    return Rollout(prompts, reports, advantages.to(policy.device), float(totals.mean()))


def open_rewards() -> RewardService:
    """Build the reward of these reports."""
    return RewardService(RewardSettings(terms={"label_f1": 1.0}))
