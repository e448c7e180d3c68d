"""Alarms as callbacks of TRL's GRPOTrainer: `trainer.add_callback(SamplerAlarm(trainer))`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback

from rrgclinical.common.arguments import completion_text
from rrgclinical.severity import AxesMonitor, Severity
from rrgpolicy.model.policy import ids_of_images
from rrgpolicy.sampler_alarm import ROUNDING, SamplerMonitor, reshaped_by
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
        self._monitor = SamplerMonitor()
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
        limit = ROUNDING[trainer.accelerator.unwrap_model(trainer.model).dtype]
        computed = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if (mixed := trainer.accelerator.mixed_precision) in computed:
            limit = ROUNDING[computed[mixed]]
        row = self._monitor(
            trainer.state.global_step,
            logps,
            sampler,
            limit=limit if self.max_gap is None else self.max_gap,
            top_p=trainer.args.top_p,
            temperature=trainer.temperature,
            plays=self._plays(batches),
            at_temperature=lambda t: self._anew(batches, temperature=t),
        )
        for name, value in row.items():
            trainer._metrics["train"][name].append(value)

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


class AxesAlarm(TrainerCallback):
    """Logs the eight axes of evaluations; tells when one falls as the reward rises.

    Reads what the trainer writes and scores while it evaluates, on all processes.
    """

    def __init__(self, trainer: Any, column: str = "report", table: str | None = None) -> None:
        """column: the data set's references; its `id` names studies. table: as `Severity`'s."""
        if isinstance(trainer.eval_dataset, Mapping):
            raise UserError("eval_dataset is several; AxesAlarm follows one: give the trainer one")
        self._trainer, self._column = trainer, column
        self._monitor, self._rows = AxesMonitor(Severity(table)), list[tuple[Any, ...]]()
        real: Callable[..., Tensor] = trainer._calculate_rewards

        @wraps(real)
        def watched(inputs: Any, prompts: Any, completions: Any, *rest: Any) -> Tensor:
            rewards = real(inputs, prompts, completions, *rest)
            if not trainer.model.training:
                self._keep(inputs, completions, rewards)
            return rewards

        trainer._calculate_rewards = watched

    def _keep(self, inputs: Sequence[Mapping[str, Any]], completions: Any, rewards: Tensor) -> None:
        """Keep the rows of this process; TRL has gathered the rewards of all, in their order."""
        if self._column not in inputs[0]:
            have = ", ".join(sorted(inputs[0]))
            raise UserError(f"the data set has no column {self._column!r}, it has {have}")
        totals = (rewards * self._trainer.reward_weights.to(rewards.device)).nansum(1)
        totals[rewards.isnan().all(1)] = torch.nan  # scored by nobody, which is not 0
        begin = self._trainer.accelerator.process_index * len(completions)
        own = totals[begin : begin + len(completions)].tolist()
        for row, completion, total in zip(inputs, completions, own, strict=True):
            truth, text = row[self._column], completion_text(completion)
            self._rows.append((str(row.get("id", truth)), text, truth, total))

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the axes of the evaluation that has ended."""
        rows, self._rows = gather_object(self._rows), []
        ids, reports, truth, rewards = ([row[k] for row in rows] for k in range(4))
        step = state.global_step if state.is_world_process_zero else None  # which prints the line
        if row := self._monitor(ids, reports, truth, rewards, step):
            self._trainer.log(row)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        """Forget the rows of a prediction, which is no validation."""
        self._rows = []


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
