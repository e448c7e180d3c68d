"""The loss of `RRGTrainer` with a recipe: the algorithm's objective in rows of TRL's batch."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from trl.trainer import utils

from rrgkern import PolicyLoss, PreferencePairs, policy_loss, preference_loss
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import members
from rrgtrain.errors import UserError
from rrgtrain.integrations.trl_rows import Rows, rows_of_batch, shared_logps
from rrgtrain.schema import RlSettings
from rrgtrain.train import Batch

LOSSES = ("grpo", "dr_grpo", "dapo", "cispo")


class ObjectiveRows:
    """Lays an objective out by TRL's rows, and computes its loss."""

    def _objective(self: Any, output: dict[str, Any]) -> dict[str, Any]:
        """The algorithm's objective in rows of TRL's batch, of which micro-batches are cut."""
        groups, device, size = self._groups, self.accelerator.device, self.num_generations
        every = members(groups)
        scored = torch.tensor([m.scored for m in every])
        rewards = torch.full((len(every),), torch.nan, dtype=torch.float64)
        rewards[scored] = self._rewards[self._is_member]
        objective = as_objective(self.algorithm.advantages(groups, rewards))
        aggregation: Any = "dapo" if self.loss_type == "cispo" else self.loss_type
        settings = RlSettings(aggregation=aggregation, max_new_tokens=self.max_completion_length)
        batch = Batch.of(groups, objective, settings)
        for name, value in objective.metrics.items():
            self._metrics["train"][name].append(value)
        # as if one process had all groups: TRL averages gradients over processes
        counted = int(scored.sum()), sum(len(m.ids) for m in every if m.scored)
        sums = self.accelerator.gather(torch.tensor([counted], device=device)).sum(0).tolist()
        of_tokens = aggregation == "dapo"
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

    def _spec(self: Any) -> PolicyLoss:
        is_cispo = self.loss_type == "cispo"
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
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
            loss: Tensor = super()._compute_loss(model, inputs)  # type: ignore[misc]
            return loss
        mask = inputs["completion_mask"].bool()
        rows, oracle_of = self._rows(inputs)
        sharing = "auto" if self.extras.share else "none"
        by_entropy = self.top_entropy_quantile < 1
        logps, entropy = shared_logps(self, model, rows, entropy=by_entropy, sharing=sharing)
        lengths = torch.tensor([len(ids) for ids in rows.completions], device=logps.device)
        offsets = pad(lengths.cumsum(0), (1, 0))
        scored = int(mask.sum())
        use = self.use_vllm and self.vllm_importance_sampling_correction

        def of(name: str, take: bool = True) -> Tensor | None:
            values = inputs.get(name) if take else None
            return None if values is None else values[mask].to(logps.dtype)

        ref, measured = of("ref_per_token_logps"), None
        if entropy is not None:
            measured = entropy[:scored].detach().to(logps.dtype)
        out = policy_loss(
            logps[:scored],
            self._kept_advantages(inputs, logps[:scored], entropy).to(logps.dtype)[None],
            offsets[: len(mask) + 1],
            scale=inputs["rrg_scale"].to(logps.dtype),
            old=of("old_per_token_logps"),
            ref=ref,
            entropy=measured,
            sampler=of("sampling_per_token_logps", use),
            token_weight=of("rrg_weights"),
            mask=inputs["rrg_counts"][mask],
            spec=self._spec(),
        )
        # logged as 0 they would read as measured
        absent = {"kl": ref is None, "entropy": measured is None}
        loss, metrics = out.loss, {k: v for k, v in out.metrics.items() if not absent.get(k)}
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

    @torch.no_grad()
    def _kept_advantages(
        self: Any, inputs: dict[str, Any], logps: Tensor, entropy: Tensor | None
    ) -> Tensor:
        """Advantages [N], 0 where TRL's quantile of the entropy or off-policy mask leaves out."""
        mask, advantages = inputs["completion_mask"].bool(), inputs["rrg_advantages"]
        counted = mask & inputs["rrg_counts"]

        def padded(values: Tensor) -> Tensor:
            return values.new_zeros(mask.shape).masked_scatter(mask, values)

        if entropy is not None:
            entropies, share = padded(entropy[: len(logps)]), 1 - self.top_entropy_quantile
            advantages = advantages * self.get_high_entropy_mask(entropies, counted, share)
        names = ("sampling_per_token_logps", "old_per_token_logps")
        sampled = next((inputs[n] for n in names if inputs.get(n) is not None), None)
        if (limit := self.off_policy_mask_threshold) is not None and sampled is not None:
            pair = advantages, padded(logps), sampled, counted.to(logps.dtype)
            advantages = advantages * self.get_off_policy_mask(*pair, limit)
        return advantages[mask]

    def _rows(self: Any, inputs: dict[str, Any]) -> tuple[Rows, list[int]]:
        """TRL's rows, then the oracle of each group that has one; and these groups."""
        rows = rows_of_batch(inputs)
        is_read = (inputs["rrg_pairs"] != 0) | (inputs["rrg_share"] != 0)
        oracle_of: dict[int, int] = {}
        for row in is_read.nonzero()[:, 0].tolist():
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
