"""Policy losses and advantages of this library, in the forms that verl 0.9 calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl import DataProto
from verl.trainer.ppo import core_algos

from rrgkern import PolicyLoss, group_advantages, policy_loss, tfidf_weights

# actor.policy_loss.loss_mode: what it is here. verl's own name behind the prefix is the same loss.
LOSSES: dict[str, dict[str, Any]] = {
    "rrgkern": {"surrogate": "clip"},
    "rrgkern_gspo": {"surrogate": "clip", "ratio_level": "sequence_token"},
    "rrgkern_cispo": {"surrogate": "cispo"},
    "rrgkern_sapo": {"surrogate": "sapo"},
    "rrgkern_gpg": {"surrogate": "reinforce"},
}
ESTIMATOR, WEIGHTED = "rrgkern", "rrgkern_ditpo"


def spec_of(name: str, config: Any) -> PolicyLoss:
    """Build the variant that this name and the actor's configuration describe."""
    fields = dict(LOSSES[name])
    low, high = config.clip_ratio_low, config.clip_ratio_high
    fields["eps_low"] = config.clip_ratio if low is None else low
    fields["eps_high"] = config.clip_ratio if high is None else high
    if name == "rrgkern":
        fields["dual_clip"] = config.get("clip_ratio_c", 3.0)
    if name == "rrgkern_sapo":
        fields |= {"sapo_tau_pos": config.tau_pos, "sapo_tau_neg": config.tau_neg}
    return PolicyLoss(**fields)


@dataclass(frozen=True)
class ScoredRows:
    """lengths: [B] scored tokens of each row. limit: columns of the padded response."""

    lengths: Tensor
    limit: int

    def scale(self, mode: str, info: Mapping[str, Any]) -> Tensor:
        """Compute the factor [B] of each row's tokens: verl's divisors, of the whole step.

        Raises ValueError for an unknown mode, and where several ranks share a step whose counts
        `info`, the actor's global_batch_info, lacks.
        """
        ranks = info.get("dp_size", 1)
        tokens, rows = info.get("batch_num_tokens"), info.get("global_batch_size")
        count = tokens if mode == "token-mean" else rows
        if count is None and mode != "token-sum":
            if ranks > 1:
                raise ValueError(f"{mode} on {ranks} ranks: wanted the counts of the whole step")
            # verl leaves a row without tokens out of the mean
            count = self.lengths.sum() if mode == "token-mean" else (self.lengths > 0).sum()
        ones = torch.ones_like(self.lengths, dtype=torch.float64)
        if mode == "token-sum":
            return ones * ranks
        if mode in ("token-mean", "seq-mean-token-sum"):
            return ones * ranks / count
        if mode == "seq-mean-token-sum-norm":
            return ones * ranks / count / (info.get("loss_scale_factor") or self.limit)
        if mode == "seq-mean-token-mean":
            return ones * ranks / count / self.lengths.clamp(min=1)
        raise ValueError(f"loss_agg_mode is {mode!r}, which verl 0.9 does not have")


def verl_loss(
    name: str,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Compute a loss of LOSSES on padded rows [B, T], as verl's `PolicyLossFn`.

    Nothing is read where the mask is 0. An advantage is per token, so weights of tokens come with
    it; `rollout_is_weights` [B, T] weigh tokens too.
    """
    mask = response_mask.bool()
    rows = ScoredRows(mask.sum(1), mask.shape[1])
    # verl's SAPO knows one mean
    mode = "seq-mean-token-mean" if name == "rrgkern_sapo" else loss_agg_mode
    scale = rows.scale(mode, config.global_batch_info).to(log_prob.dtype)
    out = policy_loss(
        log_prob[mask],
        advantages[mask].to(log_prob.dtype)[None],
        torch.cat([rows.lengths.new_zeros(1), rows.lengths.cumsum(0)]),
        scale=scale[:, None],
        old=old_log_prob[mask],
        token_weight=None if rollout_is_weights is None else rollout_is_weights[mask],
        spec=spec_of(name, config),
    )
    apart = (old_log_prob[mask] - log_prob.detach()[mask]).sum() / rows.lengths.sum().clamp(min=1)
    clipped = out.metrics["clip_low"] + out.metrics["clip_high"]
    values = torch.stack([v.float() for v in (clipped, apart, out.metrics["ratio_max"])]).tolist()
    names = ("actor/pg_clipfrac", "actor/ppo_kl", "actor/ratio_max")
    return out.loss, dict(zip(names, values, strict=True))


def verl_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    config: Any = None,
    token_weight: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Compute each row's advantage in its group, times its tokens' weights.

    Args:
        token_level_rewards: [B, T], summed over the row.
        response_mask: [B, T].
        index: [B] names of groups, in any order.
        config: of the algorithm; its norm_adv_by_std_in_grpo divides by the group's deviation.
        token_weight: [B, T]; none is 1.

    Returns:
        Advantages [B, T], 0 outside of the mask, twice: verl wants returns too.
    """
    order, offsets = _grouped(index, response_mask.device)
    by_std = config is None or config.get("norm_adv_by_std_in_grpo", True)
    scores = token_level_rewards.sum(-1)
    advantages = torch.empty_like(scores, dtype=torch.float32)
    advantages[order] = group_advantages(
        scores[order], offsets, std="sample" if by_std else "none", eps=1e-6 if by_std else None
    )
    rows = advantages[:, None] * response_mask
    if token_weight is not None:
        rows = rows * token_weight.masked_fill(~response_mask.bool(), 0.0)
    return rows, rows


def weighted_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    config: Any = None,
    responses: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Compute advantages times DiTPO's TF-IDF weights of `responses` [B, T], token ids.

    Raises ValueError without `responses`, which verl's trainers do not hand over by themselves.
    """
    if responses is None:
        raise ValueError(
            f"{WEIGHTED} wants token ids, and verl hands an estimator none: set "
            "verl.trainer.ppo.ray_trainer.compute_advantage to that of "
            "rrgtrain.integrations.verl_loss, or say algorithm.adv_estimator=rrgkern"
        )
    order, groups = _grouped(index, responses.device)
    mask = response_mask.bool()[order]
    lengths = mask.sum(1)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    alpha = 4.0 if config is None else config.get("rrgkern_alpha", 4.0)
    weights = torch.ones_like(response_mask, dtype=torch.float32)
    ordered = weights[order]
    ordered[mask] = tfidf_weights(responses[order][mask], offsets, groups, alpha=alpha)
    weights[order] = ordered
    return verl_advantages(
        token_level_rewards, response_mask, index, config=config, token_weight=weights
    )


def compute_advantage(data: DataProto, adv_estimator: str, **options: Any) -> DataProto:
    """Do what verl's `compute_advantage` does, and hand token ids to `rrgkern_ditpo`."""
    if adv_estimator != WEIGHTED:
        from verl.trainer.ppo.ray_trainer import compute_advantage as verls

        return verls(data, adv_estimator=adv_estimator, **options)
    estimate = core_algos.get_adv_estimator_fn(adv_estimator)
    data.batch["advantages"], data.batch["returns"] = estimate(
        token_level_rewards=data.batch["token_level_rewards"],
        response_mask=data.batch["response_mask"],
        index=data.non_tensor_batch["uid"],
        config=options.get("config"),
        responses=data.batch["responses"],
    )
    return data


def register() -> None:
    """Enter losses and estimators into verl's registries."""
    for name in LOSSES:
        core_algos.register_policy_loss(name)(partial(verl_loss, name))
    core_algos.register_adv_est(ESTIMATOR)(verl_advantages)
    core_algos.register_adv_est(WEIGHTED)(weighted_advantages)


def _grouped(index: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the order that brings each group together, and where groups begin in it."""
    _, numbers, counts = np.unique(index.astype(str), return_inverse=True, return_counts=True)
    order = torch.from_numpy(np.argsort(numbers, kind="stable")).to(device)
    return order, torch.from_numpy(np.concatenate([[0], counts.cumsum()])).to(device)
