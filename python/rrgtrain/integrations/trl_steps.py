"""`RRGTrainer`: TRL's methods, each its own where nothing is switched on."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from trl import GRPOTrainer
from trl.data_utils import prepare_multimodal_messages
from trl.trainer import utils

from rrgclinical.common.arguments import completion_text
from rrgdata.study import Study
from rrgpolicy import preflight
from rrgpolicy.model.codec import ReportCodec
from rrgpolicy.model.policy import special_ids
from rrgpolicy.model.prompt import EncodedPrompt
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.algorithms.base import Context, keep_all
from rrgtrain.config import replaced
from rrgtrain.errors import UserError
from rrgtrain.integrations.trl_alarm import SamplerAlarm
from rrgtrain.integrations.trl_loss import LOSSES, ObjectiveRows
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.integrations.trl_rows import Rows, SharedPrefix, shared_logps
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe

STD: dict[str, Any] = {"none": "none", "group": "sample"}
NOWHERE = EncodedPrompt({}, torch.zeros(1, 0))


@dataclass(frozen=True)
class Extras:
    """Switch what `RRGTrainer` adds to TRL's trainer.

    recipe: its algorithm edits, weighs tokens and injects the oracle, with the sections `edit`,
    `token_weights`, `oracle` and `reward`; numbers of TRL's own configuration stay TRL's. None:
    TRL's algorithm. share: each prompt, and its images, once for its group. alarm: compare sampler
    and trainer, see `SamplerAlarm`; max_gap: its limit. column: the data set's reference reports.
    preflight: warn of what `rrgpolicy.preflight` finds, by a loss and a backward before the first.
    """

    recipe: Recipe | None = None
    share: bool = True
    alarm: bool = True
    max_gap: float | None = None
    column: str = "report"
    preflight: bool = True


class RRGTrainer(ObjectiveRows, SharedPrefix, GRPOTrainer):
    """GRPOTrainer of TRL 1.16 with edits, token weights, oracle, rewards and alarm of a recipe.

    `extras` says which; all else is TRL's, and so are its arguments. With a recipe and no
    `reward_funcs` the rewards are the recipe's, scored in one batch.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        *rest: Any,
        extras: Extras | None = None,
        **named: Any,
    ) -> None:
        self.extras = extras or Extras()
        self.algorithm, recipe = None, self.extras.recipe
        self.preflown = not self.extras.preflight
        if recipe is not None and reward_funcs is None:
            reward_funcs = trl_reward(RewardService(recipe.reward), column=self.extras.column)
        super().__init__(model, reward_funcs, *rest, **named)
        if recipe is not None:
            self._build()
        if self.is_fsdp_enabled:
            self._probe()
        if self.extras.alarm:
            self.add_callback(SamplerAlarm(self, self.extras.max_gap))

    def _build(self: Any) -> None:
        """Build the recipe's algorithm under TRL's numbers; UserError for what does not go."""
        recipe, args, size = self.extras.recipe, self.args, self.num_generations
        local = args.per_device_train_batch_size * args.steps_per_generation
        joined, top = self.multi_objective_aggregation, self.epsilon_high
        refused = {
            f"loss_type={self.loss_type}; use one of {', '.join(LOSSES)}": self.loss_type
            not in LOSSES,
            f"scale_rewards={self.scale_rewards}; use none or group": self.scale_rewards not in STD,
            f"multi_objective_aggregation={joined}; use sum_then_normalize, or no recipe": (
                joined != "sum_then_normalize"
            ),
            "rl.combine=gdpo; use TRL's multi_objective_aggregation": recipe.rl.combine == "gdpo",
            "router_aux_loss_coef, the loss of experts; use 0": self.aux_loss_enabled,
            f"cispo with epsilon_high={top}; use 1 or more": self.loss_type == "cispo" and top < 1,
            f"delta={args.delta}; use more than 1 + epsilon_high": 0 < (args.delta or 0) <= 1 + top,
            "mask_truncated_completions; leave it out": self.mask_truncated_completions,
            "tools, environments or a rollout function; leave them out": self.tools
            or self.rollout_func
            or self.environment_factories,
            "an entropy bonus; leave it out": self._entropy_bonus_enabled,
            "rl.top_entropy_quantile; use TRL's": recipe.rl.top_entropy_quantile
            not in (1, self.top_entropy_quantile),
            "rl.off_policy_mask_threshold; use TRL's": recipe.rl.off_policy_mask_threshold
            not in (None, self.off_policy_mask_threshold),
            f"{local} completions a process, no multiple of num_generations={size}": local % size,
        }
        for line, is_refused in refused.items():
            if is_refused:
                raise UserError(f"RRGTrainer with a recipe does not take {line}")
        own = replace(recipe.rl, group=size, std=STD[self.scale_rewards], beta=self.beta)
        self.algorithm = build_algorithm(replaced(recipe, rl=own))
        if self.algorithm.needs_reference and self.beta == 0:
            raise UserError(
                f"rl.algorithm={recipe.rl.algorithm} compares with a reference, and TRL keeps none "
                "at beta=0; use beta=1e-9 or more, or oracle.loss=sft"
            )
        if self.algorithm.leaves_out is not keep_all:
            raise UserError(
                f"rl.algorithm={recipe.rl.algorithm} with edit.keep={recipe.edit.keep} leaves "
                "members out by their reward, and TRL keeps all; use edit.keep=all"
            )
        tokenizer, inner = self._tokenizer, self.accelerator.unwrap_model(self.model)
        rows = inner.get_input_embeddings().num_embeddings
        ends, end = self.eos_token_ids, tokenizer.eos_token_id
        special = special_ids(inner.config, tokenizer, rows, ends)
        self.codec = ReportCodec(tokenizer, ends, end, rows, special)
        column = self.extras.column
        if column not in (self.train_dataset.column_names or [column]):
            raise UserError(
                f"the data set has no column {column!r}; name that of the reference reports in "
                "Extras(column=...)"
            )
        rows = enumerate(self.train_dataset.select_columns([column]))
        studies = [_study(row, column, f"row {r}") for r, row in rows]
        self.algorithm.check(studies)
        self.algorithm.prepare(Context(self.codec, studies))

    def _probe(self: Any) -> None:
        """Find how prompts can be shared while every weight is whole: shards have no gradient."""
        row, inner = next(iter(self.train_dataset)), self.accelerator.unwrap_model(self.model)
        pictures = row.get("images") or [p for p in [row.get("image")] if p is not None]
        turns = row["prompt"]
        if pictures:
            turns = prepare_multimodal_messages(turns, images=pictures)
        ids, _, fields = self._tokenize_prompts([turns])
        images = {k: torch.as_tensor(v) for k, v in fields.items()}
        images = {k: v[0] if v.shape[1:] == (len(ids[0]),) else v for k, v in images.items()}
        prompt = torch.tensor(ids[0])
        for keeps in (True, False) if self.args.gradient_checkpointing else (False,):
            if keeps:
                inner.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
            with torch.no_grad():
                shared_logps(self, inner, Rows([prompt], [images], [prompt[-1:]]))
            if keeps:
                inner.gradient_checkpointing_disable()

    def compute_loss(self: Any, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        """Compute TRL's loss, once more before the first step for `preflight`, which warns."""
        whole = self.accelerator.sync_gradients or self.accelerator.num_processes == 1
        fsdp1 = self.is_fsdp_enabled and not self.accelerator.is_fsdp2
        plain = not (self.is_deepspeed_enabled or fsdp1)  # which `preflight` does not know
        if not self.preflown and self.optimizer and whole and plain and model.training:
            self.preflown, metrics = True, copy.deepcopy(self._metrics)
            with mock.patch.object(self, "_metrics", metrics):

                def step() -> None:
                    loss = super(RRGTrainer, self).compute_loss(model, inputs, *rest, **named)
                    self.accelerator.backward(loss)

                for fault in preflight(model, self.optimizer, step):
                    warnings.warn(f"{fault.name}: {fault.line}; {fault.mend}", stacklevel=2)
        return super().compute_loss(model, inputs, *rest, **named)

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        if self.extras.share:
            return super()._get_per_token_logps_and_entropies(*arguments, **named)
        return super(SharedPrefix, self)._get_per_token_logps_and_entropies(*arguments, **named)

    def _prepare_inputs(self: Any, generation_batch: Any) -> Any:
        """TRL's, whole groups shuffled in place of rows where groups are shared."""
        size = self.num_generations
        in_groups = self.extras.share or self.algorithm is not None
        if not (self.model.training and in_groups and len(generation_batch) % size == 0):
            return super()._prepare_inputs(generation_batch)
        steps = self.args.steps_per_generation
        if self._step % (steps * self.num_iterations) == 0 or self._buffered_inputs is None:
            output = self._generate_and_score_completions(generation_batch)
            whole = utils.split_pixel_values_by_grid(output)
            groups = torch.arange(len(generation_batch)).view(-1, size)
            order = groups[torch.randperm(len(groups))].flatten().tolist()
            parts = utils.split_tensor_dict({k: _taken(v, order) for k, v in whole.items()}, steps)
            self._buffered_inputs = [utils.unsplit_pixel_values_by_grid(part) for part in parts]
        return self._buffered_inputs[self._step % steps]

    def _generate_and_score_completions(self: Any, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._refuse_other_groups(inputs)
        if self.algorithm is None or not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._inputs = inputs
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        del self._inputs
        return output | self._objective(output)

    def _refuse_other_groups(self: Any, inputs: list[dict[str, Any]]) -> None:
        """UserError on all processes where one's rows do not go with those of the others."""
        # sharing alone needs as many rows on each process, or one waits for ever
        processes, size = self.accelerator.num_processes, self.num_generations
        if not (self.model.training and (self.algorithm or (self.extras.share and processes > 1))):
            return
        keys = [_group_key(row, self.extras.column) for row in inputs] if self.algorithm else []
        broken = any(key != keys[r - r % size] for r, key in enumerate(keys))
        own = torch.tensor([len(inputs), int(broken)], device=self.accelerator.device)
        for rank, (count, is_broken) in enumerate(
            self.accelerator.gather(own).view(-1, 2).tolist()
        ):
            if is_broken or count != len(inputs) or (self.algorithm and count % size):
                fault = f"that are not whole groups of {size}" if self.algorithm else "not as many"
                raise UserError(
                    f"process {rank} has {count} completions {fault} "
                    f"as process {self.accelerator.process_index}'s {len(inputs)}; give all "
                    "processes the same data set and seed, and a multiple of num_generations"
                )

    def _generate(self: Any, prompts: list[Any]) -> tuple[Any, ...]:
        """TRL's for the members that are sampled, then the algorithm's own members."""
        if self.algorithm is None or not self.model.training:
            return super()._generate(prompts)
        size, sampled = self.num_generations, self.algorithm.sampled
        self.num_generations = sampled
        try:
            drawn = super()._generate([p for r, p in enumerate(prompts) if r % size < sampled])
        finally:
            self.num_generations = size
        prompt_ids, ids, _, texts, logps, fields, images, _ = drawn
        own = self._completed(ids)
        firsts = range(0, len(ids), sampled)
        talks = isinstance(texts[0], list)
        rows = [_row(group, k) for group in own for k in range(size)]
        texts = [[{"role": "assistant", "content": m.text}] if talks else m.text for m, _ in rows]
        sampler_logps = None
        if logps is not None:
            blank = [[float("nan")] * len(m.ids) for m, _ in rows]
            sampler_logps = [
                logps[r // size * sampled + r % size] if r % size < sampled else blank[r]
                for r in range(len(rows))
            ]
        of_group = [first for first in firsts for _ in range(size)]
        self._groups, self._is_member = own, torch.tensor([is_member for _, is_member in rows])
        return (
            [prompt_ids[first] for first in of_group],
            [m.ids.tolist() for m, _ in rows],
            None if bool(self._is_member.all()) else [[int(i)] * len(m.ids) for m, i in rows],
            texts,
            sampler_logps,
            fields,
            None if images is None else [images[first] for first in of_group],
            [],
        )

    def _completed(self: Any, ids: list[list[int]]) -> list[Group]:
        """The groups with the sampled members and the algorithm's own."""
        size, sampled = self.num_generations, self.algorithm.sampled
        count = len(ids) // sampled
        first = self.accelerator.process_index * count
        groups = []
        for b in range(count):
            drawn = [torch.tensor(i) for i in ids[b * sampled : (b + 1) * sampled]]
            own = (Member(i, self.codec.decode(i), finished=self._ends(i)) for i in drawn)
            study = _study(self._inputs[b * size], self.extras.column)
            groups.append(Group(first + b, study, NOWHERE, tuple(own)))
        step = self.state.global_step
        completed, counts = self.algorithm.complete(groups, step, self.codec.reencode_from)
        for name, value in counts.items():
            self._metrics["train"][name].append(value)
        return completed

    def _ends(self: Any, ids: Tensor) -> bool:
        return bool(len(ids)) and int(ids[-1]) in self.eos_token_ids

    def _calculate_rewards(self: Any, inputs: Any, prompts: Any, texts: Any, ids: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, texts, ids)
        if self.algorithm is None or not self.model.training:
            return rewards
        is_member = self.accelerator.gather(self._is_member.to(rewards.device))
        if bool((rewards.isnan().all(1) & is_member).any()):
            raise UserError("a reward function gave None for a report; give a number, or raise")
        rewards[~is_member] = torch.nan  # no member of its group: TRL leaves it out of its means
        first = self.accelerator.process_index * len(texts)
        weighed = rewards.double() * self.reward_weights.to(rewards.device).double()
        self._rewards = weighed.nansum(1)[first : first + len(texts)].cpu()
        return rewards


def _study(row: dict[str, Any], column: str, where: str = "a row") -> Study:
    if not isinstance(row[column], str | list):
        kind = type(row[column]).__name__
        raise UserError(f"{where} of the data set: {column!r} is {kind}; wanted a report's text")
    report = completion_text(row[column])
    named = f"{row.get('prompt')!r}{report}".encode()
    name = str(row.get("id", hashlib.sha256(named).hexdigest()[:16]))
    return Study(name, "train", report, None, ())


def _group_key(row: dict[str, Any], column: str) -> str:
    """What tells a group from others, as text: there NaN is NaN; pixels would cost."""
    parts = [row.get(name) for name in ("prompt", "id", column)]
    return json.dumps(parts, default=lambda v: getattr(v, "tolist", lambda: str(type(v)))())


def _row(group: Group, k: int) -> tuple[Member, bool]:
    """The k-th scored member of a group; beyond these the first once more, which is none."""
    scored = [member for member in group.members if member.scored]
    return (scored[k], True) if k < len(scored) else (scored[0], False)


def _taken(values: Any, order: list[int]) -> Any:
    if isinstance(values, Tensor):
        return values[order] if values.ndim else values
    return None if values is None else [values[k] for k in order]
