"""The alarms in verl 0.9: `watch_verl()` in a module of VERL_USE_EXTERNAL_MODULES."""

from __future__ import annotations

from functools import wraps
from itertools import count
from typing import Any

import torch

from rrgclinical.severity import AxesMonitor, Severity
from rrgpolicy.sampler_alarm import ROUNDING, SamplerMonitor
from rrgtrain.errors import UserError


def watch_verl(limit: float = ROUNDING[torch.bfloat16], table: str | None = None) -> None:
    """Put sampler's alarm and axes into verl's RayPPOTrainer, once, in the process that drives it.

    limit: nats a token on average. table: as `Severity`'s. Rollouts are compared where verl keeps
    the sampler's log-probs (`rollout.calculate_log_probs=true`), axes are read from what it dumps.
    """
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer as Trainer
    from verl.utils.debug import metrics

    compare = metrics.calculate_debug_metrics
    validate, dump = Trainer._validate, Trainer._dump_generations
    if hasattr(validate, "__wrapped__"):
        return
    sampler, axes, steps = SamplerMonitor(limit), AxesMonitor(Severity(table)), count(1)

    @wraps(compare)
    def compared(data: Any) -> dict[str, Any]:
        """Compare where verl itself prints how far the two lie apart."""
        mask = data.batch["response_mask"].bool()
        shown, images = data.non_tensor_batch.get("multi_modal_inputs"), None
        if shown is not None:
            rows = torch.tensor([bool(one) for one in shown])
            images = rows[:, None].expand_as(mask)[mask.cpu()]
        names = ("old_log_probs", "rollout_log_probs")
        pair = (data.batch[name][mask].double().cpu() for name in names)
        return {**compare(data), **sampler(next(steps), *pair, images=images)}

    @wraps(dump)
    def dumped(self: Any, **of: Any) -> None:
        dump(self, **of)
        self._rrg_dumped = of

    @wraps(validate)
    def validated(self: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        if not self.config.trainer.get("validation_data_dir", None):
            raise UserError(
                "verl hands on no validation's texts; set trainer.validation_data_dir=DIR"
            )
        result: dict[str, Any] = validate(self, *arguments, **options)
        of = self._rrg_dumped
        row = axes(of["gts"], of["outputs"], of["gts"], of["scores"], self.global_steps)
        # a validation that is merged with a training step hands on no metrics
        return result if "reward_extra_infos_dict" in result else {**result, **row}

    metrics.calculate_debug_metrics = compared
    Trainer._validate, Trainer._dump_generations = validated, dumped
