"""Rewards as verl 0.9 asks for them: one sample a call, scored in batches."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import TypeAdapter, ValidationError
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rrgclinical.serving.batcher import Batcher, BatchSettings
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

MANAGER = "rrgkern"
# verl itself bounds how many samples wait.
SETTINGS = BatchSettings(queue=1 << 30)


def reward_settings(config: Any) -> RewardSettings:
    """Read `reward.reward_kwargs` of verl's configuration: fields of RewardSettings."""
    kwargs = dict(config.reward.get("reward_kwargs") or {})
    kwargs = {k: dict(v) if hasattr(v, "items") else v for k, v in kwargs.items()}
    try:
        return TypeAdapter(RewardSettings).validate_python(kwargs)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UserError(f"reward.reward_kwargs.{name}: {first['msg']}") from error


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
        self.batcher = Batcher(RewardService(reward_settings(config)), SETTINGS)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last sequence of a sample."""
        item = data[-1:][0]
        responses = item.batch["responses"]
        count = int(item.batch["attention_mask"][-len(responses) :].sum())
        report = self.tokenizer.decode(responses[:count], skip_special_tokens=True)
        reference = item.non_tensor_batch["reward_model"]["ground_truth"]
        batched = await asyncio.wrap_future(self.batcher.submit([report], [reference]))
        scores = {name: value for name, (value,) in batched.items()}
        return {"reward_score": scores.pop("total"), "reward_extra_info": scores}
