"""A worker of verl's reward loop that also runs an agent loop and a loss, for a Ray job on CPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hydra
import torch
from torch import Tensor
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, _agent_loop_registry
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo import core_algos
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.config import ActorConfig
from verl.workers.rollout.replica import TokenOutput


def actor(info: dict[str, Any]) -> ActorConfig:
    """Build an actor's configuration for losses, with the counts of a step."""
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=0.1,
        clip_ratio_high=0.15, clip_ratio_c=1.4, tau_pos=1.5, tau_neg=0.6,
    )  # fmt: skip
    config.global_batch_info.update(info)
    return config


class Server:
    """Answers with a report that is given, as an engine answers with what it sampled."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def generate(self, **request: Any) -> TokenOutput:
        """Return the ids."""
        return TokenOutput(token_ids=self.ids)


class Worker(RewardLoopWorker):
    """One of two workers of the job."""

    async def write(self, reports: Sequence[str], reference: str) -> list[dict[str, Any]]:
        """Run the edit loop for each report of a group, as V1's worker does."""
        # what is scored next is gathered for longer than a busy machine keeps it apart
        batcher = self.reward_manager.batcher
        batcher.settings = replace(batcher.settings, wait=10.0)
        tokenizer, outputs = self.input_tokenizer, []
        for member, report in enumerate(reports):
            ids = [*tokenizer.encode(report, add_special_tokens=False), tokenizer.eos_token_id]
            loop = hydra.utils.instantiate(
                _agent_loop_registry["rrgkern_edits"],
                trainer_config=DictConfigWrap(self.config),
                server_manager=Server(ids),
                tokenizer=tokenizer,
                processor=None,
                dataset_cls=RLHFDataset,
                data_config=DictConfigWrap(self.config.data),
            )
            outputs.append(
                loop.run(
                    {},
                    raw_prompt=[{"role": "user", "content": "Report."}],
                    reward_model={"ground_truth": reference},
                    session_id=member,
                )
            )
        return [
            {"prompt": o.prompt_ids, "ids": o.response_ids, "mask": o.response_mask,
             "steps": o.extra_fields["rrgkern_edit"]}
            for o in await asyncio.gather(*outputs)
        ]  # fmt: skip

    def gradient(self, rows: dict[str, Tensor], info: dict[str, Any]) -> Tensor:
        """Differentiate the registered loss of these rows."""
        logps = rows["log_prob"].clone().requires_grad_()
        rest = {k: v for k, v in rows.items() if k != "log_prob"}
        loss, _ = core_algos.get_policy_loss_fn("rrgkern")(
            log_prob=logps, config=actor(info), loss_agg_mode="token-mean", **rest
        )
        return torch.autograd.grad(loss, logps)[0]

    def batches(self) -> int:
        """Count the calls of the reward service."""
        return self.reward_manager.batcher.counts.batches
