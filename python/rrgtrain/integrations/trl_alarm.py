"""The sampler alarm in TRL's GRPOTrainer: `trainer.add_callback(SamplerAlarm(trainer))`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback

from rrgpolicy.model.policy import ids_of_images
from rrgpolicy.sampler_alarm import ROUNDING, Run, gap_row, reshaped_by, sampler_alarm
from rrgtrain.errors import UserError
from rrgtrain.integrations.trl_rows import Rows, rows_of_batch, shared_logps


class SamplerAlarm(TrainerCallback):
    """Stops TRL's trainer before it learns from a sampler at fault; names the cause.

    Compares, before the first optimiser step on each rollout, the log-probs that the sampler gave
    (vLLM, or a rollout function) with the trainer's. A sampler that gives none is not compared, and
    one whose distribution is another by its settings (`RESHAPING`) is not either, which is told.
    Logs `sampler/gap_mean`, `sampler/gap_p99` and `sampler/ess`.
    """

    def __init__(self, trainer: Any, max_gap: float | None = None) -> None:
        """max_gap: nats a token on average; None is what rounding allows in the model's dtype."""
        self.trainer, self.max_gap = trainer, max_gap
        self._compared: Any = None
        self._agreed = False
        self._told = False

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Compare a rollout once; raises UserError on all processes where the gap is too large."""
        batches = self.trainer._buffered_inputs
        if batches is None or batches is self._compared:
            return
        self._compared = batches
        batches = [batch for batch in batches if batch.get("sampling_per_token_logps") is not None]
        args = self.trainer.args
        own = vars(args) | (args.generation_kwargs or {})  # which stand above the others
        setting = reshaped_by(own, args.temperature, args.top_p)
        if batches and setting is None:
            self._compare(batches)
        elif batches and not self._told and self.trainer.accelerator.is_main_process:
            line = f"{setting} changes the sampler's log-probs alone; leave it out to compare them"
            print(f"rrgtrain: sampler and trainer are not compared: {line}", file=sys.stderr)
            self._told = True

    def _compare(self, batches: list[dict[str, Any]]) -> None:
        trainer = self.trainer
        sampler = self._of_all(batches, [b["sampling_per_token_logps"] for b in batches])
        logps = self._of_all(batches, [self._logps(batch) for batch in batches])
        if not len(sampler):
            return
        limit = ROUNDING[trainer.accelerator.unwrap_model(trainer.model).dtype]
        computed = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if (mixed := trainer.accelerator.mixed_precision) in computed:
            limit = ROUNDING[computed[mixed]]
        run = Run(
            limit if self.max_gap is None else self.max_gap,
            top_p=trainer.args.top_p,
            temperature=trainer.temperature,
            plays=self._plays(batches),
            at_temperature=lambda t: self._anew(batches, temperature=t),
            agreed=self._agreed,
        )
        row = gap_row(logps, sampler, run.top_p)
        for name, value in row.items():
            trainer._metrics["train"][name].append(value)
        fault = sampler_alarm(logps, sampler, run)
        if fault is not None:
            raise UserError(
                f"trainer and sampler differ by {row['sampler/gap_mean']:.3g} nats a token on "
                f"average at step {trainer.state.global_step}, more than {run.limit:g}; likely "
                f"{fault.line}"
            )
        self._agreed = True

    def _plays(self, batches: list[dict[str, Any]]) -> dict[str, Callable[[], Tensor]]:
        trainer = self.trainer
        model = trainer.accelerator.unwrap_model(trainer.model)
        tokenizer, config = trainer._tokenizer, model.config
        vocabulary = model.get_input_embeddings().num_embeddings
        shown = torch.tensor(ids_of_images(config, tokenizer, vocabulary), dtype=torch.int64)
        special = torch.tensor(sorted(tokenizer.added_tokens_decoder), dtype=torch.int64)
        plays: dict[str, Callable[[], Tensor]] = {
            "template": lambda: self._anew(batches, lambda rows: _without(rows, special, shown))
        }
        if any(batch.get("pixel_values") is not None for batch in batches):
            plays["images"] = lambda: self._anew(batches, lambda rows: _blind(rows, shown))
        if hasattr(model, "get_base_model"):

            def without_adapter() -> Tensor:
                with model.disable_adapter():
                    return self._anew(batches)

            plays["adapter"] = without_adapter
        elif all(batch.get("ref_per_token_logps") is not None for batch in batches):
            plays["step 0"] = lambda: self._of_all(
                batches, [b["ref_per_token_logps"] for b in batches]
            )
        return plays

    def _logps(self, batch: dict[str, Any]) -> Tensor:
        old: Tensor | None = batch.get("old_per_token_logps")
        return self._padded(batch, rows_of_batch(batch)) if old is None else old

    def _anew(
        self,
        batches: list[dict[str, Any]],
        changed: Callable[[Rows], Rows] = lambda rows: rows,
        temperature: float | None = None,
    ) -> Tensor:
        parts = [
            self._padded(batch, changed(rows_of_batch(batch)), temperature) for batch in batches
        ]
        return self._of_all(batches, parts)

    @torch.no_grad()
    def _padded(
        self, batch: dict[str, Any], rows: Rows, temperature: float | None = None
    ) -> Tensor:
        """[rows, T] log-probs in evaluation mode, 0 on padding."""
        trainer = self.trainer
        training = trainer.model.training
        trainer.model.eval()
        logps, _ = shared_logps(trainer, trainer.model_wrapped, rows, temperature=temperature)
        trainer.model.train(training)
        mask = batch["completion_mask"].bool()
        return logps.new_zeros(mask.shape).masked_scatter(mask, logps)

    def _of_all(self, batches: list[dict[str, Any]], values: list[Tensor]) -> Tensor:
        """The sampled tokens of all processes, fp64 [N]."""
        own = []
        for batch, padded in zip(batches, values, strict=True):
            drawn = batch["completion_mask"].bool() & ~batch["sampling_per_token_logps"].isnan()
            own.append(padded[drawn].double().cpu())
        return torch.cat(gather_object([torch.cat(own)]))


def _blind(rows: Rows, shown: Tensor) -> Rows:
    """The rows as one reads them who sees no image."""
    prompts = [ids[~torch.isin(ids, shown.to(ids.device))] for ids in rows.prompts]
    return Rows(prompts, [{} for _ in prompts], rows.completions)


def _without(rows: Rows, special: Tensor, shown: Tensor) -> Rows:
    """The rows whose prompts lack the special tokens that a chat template sets."""
    prompts, images = [], []
    for ids, own in zip(rows.prompts, rows.images, strict=True):
        near = ids.cpu()
        text = (~torch.isin(near, special) | torch.isin(near, shown)).to(ids.device)
        text = text if bool(text.any()) else torch.ones_like(text)
        prompts.append(ids[text])
        images.append({k: v[text] if v.shape == ids.shape else v for k, v in own.items()})
    return Rows(prompts, images, rows.completions)
