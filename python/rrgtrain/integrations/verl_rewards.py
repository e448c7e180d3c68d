"""Rewards as verl 0.9 asks for them: one sample a call, scored in batches."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from torch import Tensor
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rrgclinical.serving.batcher import Batcher, BatchSettings
from rrgtrain.errors import UserError
from rrgtrain.integrations.from_trainers import read_settings, reference_of
from rrgtrain.rewards import RewardService, refuse_left_out
from rrgtrain.schema import RewardSettings

MANAGER = "rrgkern"
# verl itself bounds how many samples wait.
SETTINGS = BatchSettings(queue=1 << 30)


def reward_settings(config: Any) -> RewardSettings:
    """Read `reward.reward_kwargs` of verl's configuration: fields of RewardSettings.

    Raises UserError for what they do not know, or cannot hold.
    """
    reward: Any = config.get("reward") if hasattr(config, "get") else None
    if not hasattr(reward, "get"):
        raise UserError(f"verl's configuration has reward={reward!r:.40}; wanted its section")
    return read_settings(RewardSettings, reward.get("reward_kwargs"), "reward.reward_kwargs")


@register(MANAGER)
class ReportRewardManager(RewardManagerBase):
    """Scores each sample beside `reward_model.ground_truth`; what waits is scored together.

    Every term is in the sample's `reward_extra_info`. A reward that fails raises.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        settings = reward_settings(config)
        refuse_left_out(settings, "verl")
        self.batcher = Batcher(RewardService(settings), SETTINGS)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last sequence of a sample.

        Raises UserError for a sample without what is read here, before anything is scored.
        """
        if not len(data):
            raise UserError("verl gave a batch of no samples; wanted the sequences of one")
        item = data[-1:][0]
        report = self.tokenizer.decode(_written(item.batch), skip_special_tokens=True)
        reference = reference_of(item.non_tensor_batch)
        batched = await asyncio.wrap_future(self.batcher.submit([report], [reference]))
        scores = {name: value for name, (value,) in batched.items()}
        return {"reward_score": scores.pop("total"), "reward_extra_info": scores}


def _written(fields: Any) -> Tensor:
    """Return the ids of a response without its padding.

    Raises UserError where the mask does not say where that begins.
    """
    names = ("responses", "attention_mask")
    if lacking := [name for name in names if name not in fields.keys()]:  # noqa: SIM118
        have = ", ".join(sorted(fields.keys()))
        raise UserError(
            f"a sample has no {lacking[0]}, it has {have}; wanted {' and '.join(names)}"
        )
    responses, mask = fields["responses"], fields["attention_mask"]
    if responses.dim() != 1 or responses.is_floating_point() or mask.shape[0] < len(responses):
        raise UserError(
            f"responses are {responses.dtype} {tuple(responses.shape)} and attention_mask "
            f"{tuple(mask.shape)}; wanted ids [T] and the mask [P + T] of prompt and response"
        )
    shown = mask[mask.shape[0] - len(responses) :]
    count = int(shown.sum())
    if not bool((shown == (torch.arange(len(shown), device=shown.device) < count)).all()):
        raise UserError(
            f"attention_mask of a response is {shown.tolist()!r:.60}; wanted 1 on its tokens, then "
            "0 on the padding"
        )
    return responses[:count]
