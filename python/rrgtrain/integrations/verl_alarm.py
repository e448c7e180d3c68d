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
    """Put sampler's alarm and axes into verl's trainers, once, in the process that drives them.

    limit: nats a token on average. table: as `Severity`'s. Rollouts are compared where verl keeps
    the sampler's log-probs (`rollout.calculate_log_probs=true`), axes are read from what it dumps.
    """
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.utils.debug import metrics

    compare = metrics.calculate_debug_metrics
    if hasattr(compare, "watched"):
        return
    try:  # of `trainer.use_v1=true`, which an older verl has not
        from verl.trainer.ppo.v1 import trainer_base as v1
    except ImportError:
        v1 = metrics
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
        step = data.meta_info.get("global_steps", next(steps))
        return {**compare(data), **sampler(step, *pair, images=images)}

    compared.watched = True  # type: ignore[attr-defined]
    metrics.calculate_debug_metrics = v1.calculate_debug_metrics = compared
    for trainer in {RayPPOTrainer, getattr(v1, "PPOTrainer", RayPPOTrainer)}:
        _watch_axes(trainer, axes)


def _watch_axes(trainer: Any, axes: AxesMonitor) -> None:
    validate, dump = trainer._validate, trainer._dump_generations

    @wraps(dump)
    def dumped(self: Any, **of: Any) -> None:
        dump(self, **of)
        if hasattr(self, "rrg_dumped"):  # not what training dumps
            self.rrg_dumped = of

    @wraps(validate)
    def validated(self: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        if not self.config.trainer.get("validation_data_dir", None):
            raise UserError(
                "verl hands on no validation's texts; set trainer.validation_data_dir=DIR"
            )
        self.rrg_dumped = None
        result: dict[str, Any] = validate(self, *arguments, **options)
        of = self.rrg_dumped
        del self.rrg_dumped
        row = axes(of["gts"], of["outputs"], of["gts"], of["scores"], self.global_steps)
        # a validation that is merged with a training step hands on no metrics
        return result if "reward_extra_infos_dict" in result else {**result, **row}

    trainer._validate, trainer._dump_generations = validated, dumped
