"""`RRGTrainer`: TRL's methods, each its own where nothing is switched on."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer
from trl.data_utils import prepare_multimodal_messages
from trl.trainer import utils

from rrgdata.study import Study
from rrgkern import PolicyLoss, PreferencePairs, policy_loss, preference_loss
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.algorithms.base import Context, as_objective
from rrgtrain.algorithms.group import members
from rrgtrain.errors import UserError
from rrgtrain.integrations.trl import OF_IMAGES, Rows, SharedPrefix, rows_of, shared_logps
from rrgtrain.integrations.trl_alarm import SamplerAlarm
from rrgtrain.integrations.trl_rewards import completion_text, trl_reward
from rrgtrain.policy.codec import ReportCodec
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe, RlSettings
from rrgtrain.train import Batch

STD = {"none": "none", "group": "sample"}
LOSSES = ("grpo", "dr_grpo", "dapo", "cispo")
NOWHERE = EncodedPrompt({}, torch.zeros(1, 0))


@dataclass(frozen=True)
class Extras:
    """Switch what `RRGTrainer` adds to TRL's trainer.

    recipe: its algorithm edits, weighs tokens and injects the oracle, with the sections `edit`,
    `token_weights`, `oracle` and `reward`; numbers of TRL's own configuration stay TRL's. None:
    TRL's algorithm. share: each prompt, and its images, once for its group. alarm: compare sampler
    and trainer, see `SamplerAlarm`; max_gap: its limit. column: the data set's reference reports.
    """

    recipe: Recipe | None = None
    share: bool = True
    alarm: bool = True
    max_gap: float | None = None
    column: str = "report"


class RRGTrainer(SharedPrefix, GRPOTrainer):
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
        if recipe is not None and reward_funcs is None:
            reward_funcs = trl_reward(RewardService(recipe.reward), column=self.extras.column)
        super().__init__(model, reward_funcs, *rest, **named)
        if recipe is not None:
            self._build(recipe)
        if self.is_fsdp_enabled:
            self._probe()
        if self.extras.alarm:
            self.add_callback(SamplerAlarm(self, self.extras.max_gap))

    def _build(self: Any, recipe: Recipe) -> None:
        """Build the recipe's algorithm under TRL's numbers; UserError for what does not go."""
        args, size = self.args, self.num_generations
        local = args.per_device_train_batch_size * args.steps_per_generation
        refused = {
            f"loss_type={self.loss_type}; use one of {', '.join(LOSSES)}": self.loss_type
            not in LOSSES,
            f"scale_rewards={self.scale_rewards}; use none or group": self.scale_rewards not in STD,
            "mask_truncated_completions; leave it out": self.mask_truncated_completions,
            "tools, environments or a rollout function; leave them out": self.tools
            or self.rollout_func
            or self.environment_factories,
            "top_entropy_quantile, off_policy_mask_threshold or an entropy bonus; leave them out": (
                self.top_entropy_quantile < 1
                or self.off_policy_mask_threshold is not None
                or self._entropy_bonus_enabled
            ),
            f"{local} completions a process, which splits groups of {size}; use a multiple of it": (
                local % size
            ),
        }
        for line, is_refused in refused.items():
            if is_refused:
                raise UserError(f"RRGTrainer with a recipe does not take {line}")
        std: Any = STD[self.scale_rewards]
        own = replace(recipe.rl, group=size, std=std, beta=self.beta)
        self.algorithm = build_algorithm(replace(recipe, rl=own))
        if self.algorithm.needs_reference and self.beta == 0:
            raise UserError(
                f"rl.algorithm={recipe.rl.algorithm} compares with a reference, and TRL keeps none "
                "at beta=0; use beta=1e-9 or more, or oracle.loss=sft"
            )
        tokenizer, inner = self._tokenizer, self.accelerator.unwrap_model(self.model)
        rows = inner.get_input_embeddings().num_embeddings
        self.codec = ReportCodec(tokenizer, self.eos_token_ids, tokenizer.eos_token_id, rows)
        column = self.extras.column
        if column not in (self.train_dataset.column_names or [column]):
            raise UserError(
                f"the data set has no column {column!r}; name that of the reference reports in "
                "Extras(column=...)"
            )
        studies = [_study(row, column) for row in self.train_dataset.select_columns([column])]
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
        """UserError on all processes where one's prompts are not groups as those of the others."""
        processes = self.accelerator.num_processes
        in_groups = self.extras.share or self.algorithm is not None
        if not (self.model.training and in_groups and (self.algorithm or processes > 1)):
            return
        size = self.num_generations
        prompts = [row.get("prompt") for row in inputs]
        broken = any(p != prompts[r - r % size] for r, p in enumerate(prompts))
        own = torch.tensor([len(inputs), int(broken)], device=self.accelerator.device)
        for rank, (count, is_broken) in enumerate(
            self.accelerator.gather(own).view(-1, 2).tolist()
        ):
            if is_broken or count != len(inputs) or count % size:
                raise UserError(
                    f"process {rank} has {count} completions that are not whole groups of {size} "
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
        given = None
        if logps is not None:
            blank = [[float("nan")] * len(m.ids) for m, _ in rows]
            given = [
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
            given,
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

    def _objective(self: Any, output: dict[str, Any]) -> dict[str, Any]:
        """The algorithm's objective in rows of TRL's batch, of which micro-batches are cut."""
        groups, device, size = self._groups, self.accelerator.device, self.num_generations
        every = members(groups)
        scored = torch.tensor([m.scored for m in every])
        rewards = torch.full((len(every),), torch.nan, dtype=torch.float64)
        rewards[scored] = self._rewards[self._is_member]
        objective = as_objective(self.algorithm.advantages(groups, rewards))
        batch = Batch.of(groups, objective, self._settings())
        for name, value in objective.metrics.items():
            self._metrics["train"][name].append(value)
        # as if one process had all groups: TRL averages gradients over processes
        counted = int(scored.sum()), sum(len(m.ids) for m in every if m.scored)
        sums = self.accelerator.gather(torch.tensor([counted], device=device)).sum(0).tolist()
        of_tokens = batch_aggregation(self.loss_type) == "dapo"
        part = counted[of_tokens] / sums[of_tokens] * self.accelerator.num_processes
        row_of = torch.full((len(every),), -1)
        row_of[scored] = self._is_member.nonzero()[:, 0]
        rows, width = len(groups) * size, output["completion_ids"].shape[1]
        weight = torch.ones(len(batch.advantages)) if objective.weight is None else objective.weight
        advantages = torch.zeros(rows, width, dtype=torch.float64)
        counts, weights = torch.zeros(rows, width), torch.ones(rows, width)
        scale, pairs, share = (torch.zeros(rows, dtype=torch.float64) for _ in range(3))
        mask = torch.ones_like(batch.advantages).bool() if batch.mask is None else batch.mask
        bounds = batch.offsets.tolist()
        oracles: list[Tensor] = [torch.zeros(0, dtype=torch.int64)] * rows
        owner = [b for b, group in enumerate(groups) for _ in group.members]
        for s, member in enumerate(every):
            tokens, row = slice(bounds[s], bounds[s + 1]), int(row_of[s])
            if row < 0:
                first = owner[s] * size
                oracles[first : first + size] = [member.ids] * size
                continue
            places = row, slice(0, len(member.ids))
            advantages[places], weights[places] = batch.advantages[tokens].double(), weight[tokens]
            counts[places], scale[row] = mask[tokens].float(), float(batch.scale[s])
        if objective.preference is not None:
            pair = objective.preference.pairs
            for positive, negative, value in zip(
                pair.positive, pair.negative, pair.weight, strict=True
            ):
                if row_of[positive] >= 0 or row_of[negative] < 0:
                    raise UserError("RRGTrainer takes pairs of an oracle and a scored member alone")
                pairs[row_of[negative]] += value
        if objective.likelihood is not None:
            for s in objective.likelihood.nonzero()[:, 0].tolist():
                if row_of[s] >= 0:
                    raise UserError("RRGTrainer takes the likelihood of an oracle alone")
                share[owner[s] * size] = objective.likelihood[s]
        self._preference = objective.preference
        made = {
            "rrg_advantages": advantages,
            "rrg_weights": weights,
            "rrg_counts": counts.bool(),
            "rrg_scale": scale * part,
            "rrg_pairs": pairs,
            "rrg_share": share,
            "rrg_oracles": pad_sequence(oracles, batch_first=True),
            "rrg_lengths": torch.tensor([len(ids) for ids in oracles]),
            "rrg_group": torch.arange(len(groups)).repeat_interleave(size),
        }
        own = output["completion_mask"] * self._is_member.to(device)[:, None]
        return {name: values.to(device) for name, values in made.items()} | {"completion_mask": own}

    def _settings(self: Any) -> RlSettings:
        aggregation: Any = batch_aggregation(self.loss_type)
        return RlSettings(aggregation=aggregation, max_new_tokens=self.max_completion_length)

    def _spec(self: Any) -> PolicyLoss:
        is_cispo, corrected = (
            self.loss_type == "cispo",
            self.use_vllm and self.vllm_importance_sampling_correction,
        )
        level, mode = "token", "truncate"
        if corrected:
            level, mode = self.vllm_importance_sampling_mode.split("_")
        return PolicyLoss(
            surrogate="cispo" if is_cispo else "clip",
            ratio_level=self.importance_sampling_level,
            # TRL bounds CISPO's weight by epsilon_high itself
            eps_low=None if is_cispo else self.epsilon_low,
            eps_high=self.epsilon_high - is_cispo,
            dual_clip=None if is_cispo else self.args.delta,
            beta=self.beta,
            kl_ratio_weight=self.args.use_bias_correction_kl,
            sampler_level=level,
            sampler_mode=mode,
            sampler_min=self.vllm_importance_sampling_clip_min if corrected else None,
            sampler_max=self.vllm_importance_sampling_clip_max if corrected else None,
        )

    def _compute_loss(self: Any, model: Any, inputs: dict[str, Any]) -> Tensor:
        if "rrg_scale" not in inputs:
            loss: Tensor = super()._compute_loss(model, inputs)
            return loss
        mask = inputs["completion_mask"].bool()
        rows, oracle_of = self._rows(inputs)
        sharing = "auto" if self.extras.share else "none"
        logps, _ = shared_logps(self, model, rows, sharing=sharing)
        lengths = torch.tensor([len(ids) for ids in rows.completions], device=logps.device)
        offsets = pad(lengths.cumsum(0), (1, 0))
        scored = int(mask.sum())
        use = self.use_vllm and self.vllm_importance_sampling_correction

        def of(name: str, take: bool = True) -> Tensor | None:
            values = inputs.get(name) if take else None
            return None if values is None else values[mask].to(logps.dtype)

        out = policy_loss(
            logps[:scored],
            inputs["rrg_advantages"][mask].to(logps.dtype)[None],
            offsets[: len(mask) + 1],
            scale=inputs["rrg_scale"].to(logps.dtype),
            old=of("old_per_token_logps"),
            ref=of("ref_per_token_logps"),
            sampler=of("sampling_per_token_logps", use),
            token_weight=of("rrg_weights"),
            mask=inputs["rrg_counts"][mask],
            spec=self._spec(),
        )
        loss, metrics = out.loss, dict(out.metrics)
        if oracle_of:
            place = {group: len(mask) + k for k, group in enumerate(oracle_of)}
            injected = torch.tensor([place.get(g, 0) for g in inputs["rrg_group"].tolist()])
            injected = injected.to(logps.device)
            pairs = inputs["rrg_pairs"]
            if self._preference is not None:
                chosen = pairs.nonzero()[:, 0]
                preferred = preference_loss(
                    logps,
                    self._reference_logps(model, rows),
                    offsets,
                    PreferencePairs(injected[chosen], chosen, pairs[chosen]),
                    tau=self._preference.tau,
                    length_normalized=self._preference.length_normalized,
                )
                loss = loss + preferred.loss
                metrics |= {f"oracle/{name}": value for name, value in preferred.metrics.items()}
            for row in inputs["rrg_share"].nonzero()[:, 0].tolist():
                own = logps[offsets[injected[row]] : offsets[injected[row] + 1]]
                loss = loss - inputs["rrg_share"][row] * own.mean()
        for name, value in metrics.items():
            mean = self.accelerator.gather(torch.as_tensor(value, device=logps.device).float())
            self._metrics["train"][name].append(mean.mean().item())
        # TRL adds up the micro-batches of an optimiser's step, which may be a part of a rollout
        return loss * (self.args.steps_per_generation / self.current_gradient_accumulation_steps)

    def _rows(self: Any, inputs: dict[str, Any]) -> tuple[Rows, list[int]]:
        """TRL's rows, then the oracle of each group that has one; and these groups."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        beside = {name: inputs.get(name) for name in OF_IMAGES}
        keep = inputs["completion_ids"].shape[1]
        rows = rows_of(ids, mask, keep, inputs.get("num_images"), beside)
        asked = (inputs["rrg_pairs"] != 0) | (inputs["rrg_share"] != 0)
        oracle_of: dict[int, int] = {}
        for row in asked.nonzero()[:, 0].tolist():
            oracle_of.setdefault(int(inputs["rrg_group"][row]), row)
        for row in oracle_of.values():
            rows.prompts.append(rows.prompts[row])
            rows.images.append(rows.images[row])
            rows.completions.append(inputs["rrg_oracles"][row][: inputs["rrg_lengths"][row]])
        return rows, list(oracle_of)

    @torch.no_grad()
    def _reference_logps(self: Any, model: Any, rows: Rows) -> Tensor:
        inner = self.accelerator.unwrap_model(model)
        sharing = "auto" if self.extras.share else "none"
        own = self.ref_model if self.ref_model is not None else model
        names = getattr(inner, "peft_config", {}) if self.ref_model is None else {}
        name = "ref" if "ref" in names else None
        with utils.use_adapter(inner, name) if names else nullcontext():
            return shared_logps(self, own, rows, sharing=sharing)[0]


def batch_aggregation(loss_type: str) -> str:
    """Name our aggregation of a loss of TRL."""
    return "dapo" if loss_type == "cispo" else loss_type


def _study(row: dict[str, Any], column: str) -> Study:
    report = completion_text(row[column])
    named = f"{row.get('prompt')!r}{report}".encode()
    name = str(row.get("id", hashlib.sha256(named).hexdigest()[:16]))
    return Study(name, "train", report, None, ())


def _row(group: Group, k: int) -> tuple[Member, bool]:
    """The k-th scored member of a group; beyond these the first once more, which is none."""
    scored = [member for member in group.members if member.scored]
    return (scored[k], True) if k < len(scored) else (scored[0], False)


def _taken(values: Any, order: list[int]) -> Any:
    if isinstance(values, Tensor):
        return values[order] if values.ndim else values
    return None if values is None else [values[k] for k in order]
