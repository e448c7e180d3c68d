"""Policy losses and advantages of this library, in the forms that verl 0.9 calls."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl import DataProto
from verl.trainer.ppo import core_algos

from rrgclinical.common.arguments import is_real, listed, unwrapped
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
MODES = (
    *("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm"),
    "seq-mean-token-mean",
)
_OF_BATCH = ("token_level_rewards", "response_mask", "responses", "uid")
# Fields of PolicyLoss by what the actor's configuration calls them, for messages.
_OF_ACTOR = {
    "eps_low": "clip_ratio_low",
    "eps_high": "clip_ratio_high",
    "dual_clip": "clip_ratio_c",
    "sapo_tau_pos": "tau_pos",
    "sapo_tau_neg": "tau_neg",
}


def spec_of(name: str, config: Any) -> PolicyLoss:
    """Build the variant that this name and the actor's configuration describe.

    Raises ValueError for an unknown name, and a number of the configuration that cannot be.
    """
    if name not in LOSSES:
        raise ValueError(f"the loss is {name!r}; wanted one of {', '.join(LOSSES)}")
    fields = dict(LOSSES[name])
    low, high = config.clip_ratio_low, config.clip_ratio_high
    fields["eps_low"] = config.clip_ratio if low is None else low
    fields["eps_high"] = config.clip_ratio if high is None else high
    if name == "rrgkern":
        fields["dual_clip"] = config.get("clip_ratio_c", 3.0)
    if name == "rrgkern_sapo":
        fields |= {"sapo_tau_pos": config.tau_pos, "sapo_tau_neg": config.tau_neg}
    try:
        return PolicyLoss(**fields)
    except ValueError as error:
        line = str(error)
        for ours, verls in _OF_ACTOR.items():
            line = line.replace(ours, f"actor.{verls}")
        raise ValueError(line) from None


def _scale(lengths: Tensor, limit: int, mode: str, info: Mapping[str, Any]) -> Tensor:
    """Compute the factor [B] of each row's tokens: verl's divisors, of the whole step.

    lengths: [B] scored tokens of each row. limit: columns of the padded response. Raises ValueError
    for an unknown mode, a count of `info`, the actor's global_batch_info, that is none, and where
    several ranks share a step whose counts it lacks.
    """
    if mode not in MODES:
        raise ValueError(f"loss_agg_mode is {mode!r}, which verl 0.9 does not have")
    ranks = _count(info, "dp_size", 1)
    ones = torch.ones_like(lengths, dtype=torch.float64)
    if mode == "token-sum":
        return ones * ranks
    # verl counts no token where it rejects all of a mini-batch: nothing is scaled then
    tokens = mode == "token-mean"
    count = _count(info, "batch_num_tokens" if tokens else "global_batch_size", None)
    if count is None:
        if ranks > 1:
            raise ValueError(f"{mode} on {ranks:g} ranks: wanted the counts of the whole step")
        # verl leaves a row without tokens out of the mean
        count = lengths.sum() if mode == "token-mean" else (lengths > 0).sum()
    if mode in ("token-mean", "seq-mean-token-sum"):
        return ones * ranks / count
    if mode == "seq-mean-token-sum-norm":
        return ones * ranks / count / _count(info, "loss_scale_factor", limit)
    return ones * ranks / count / lengths.clamp(min=1)


def verl_loss(  # noqa: PLR0913
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

    Raises TypeError for what is no tensor, ValueError for one of another shape than `log_prob`, a
    mask of anything but 0 and 1, and as `spec_of`. A number that is not finite goes on to the
    loss: verl leaves out a step whose gradient is none, on every rank alike.
    """
    if not isinstance(getattr(config, "global_batch_info", None), Mapping):
        raise TypeError(f"config is {type(config).__name__}; wanted verl's ActorConfig")
    rest = {"old_log_prob": old_log_prob, "advantages": advantages}
    if rollout_is_weights is not None:
        rest["rollout_is_weights"] = rollout_is_weights
    _check_rows("log_prob", log_prob, response_mask=response_mask, **rest)
    mask = _mask(response_mask)
    weights = None if rollout_is_weights is None else rollout_is_weights[mask]
    if weights is not None and bool((weights < 0).any()):
        raise ValueError("rollout_is_weights of a scored token is below 0; wanted a ratio")
    lengths = mask.sum(1)
    # verl's SAPO knows one mean
    mode = "seq-mean-token-mean" if name == "rrgkern_sapo" else loss_agg_mode
    scale = _scale(lengths, mask.shape[1], mode, config.global_batch_info).to(log_prob.dtype)
    out = policy_loss(
        log_prob[mask],
        advantages[mask].to(log_prob.dtype)[None],
        torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
        scale=scale[:, None],
        old=old_log_prob[mask],
        token_weight=weights,
        spec=spec_of(name, config),
    )
    apart = (old_log_prob[mask] - log_prob.detach()[mask]).sum() / lengths.sum().clamp(min=1)
    clipped = out.metrics["clip_low"] + out.metrics["clip_high"]
    logged = torch.stack([v.float() for v in (clipped, apart, out.metrics["ratio_max"])]).tolist()
    names = ("actor/pg_clipfrac", "actor/ppo_kl", "actor/ratio_max")
    return out.loss, dict(zip(names, logged, strict=True))


def verl_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    config: Any = None,
    token_weight: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Compute each row's advantage in its group, times its tokens' weights.

    Raises TypeError and ValueError for tensors that do not fit, a mask of anything but 0 and 1, a
    reward or weight that is not finite, names of groups that are no names, and a setting of
    another type.

    Args:
        token_level_rewards: [B, T], summed over the row.
        response_mask: [B, T].
        index: [B] names of groups, in any order.
        config: of the algorithm; its norm_adv_by_std_in_grpo divides by the group's deviation.
        token_weight: [B, T]; none is 1.

    Returns:
        Advantages [B, T], 0 outside of the mask, twice: verl wants returns too.
    """
    rest = {"response_mask": response_mask}
    if token_weight is not None:
        rest["token_weight"] = token_weight
    _check_rows("token_level_rewards", token_level_rewards, **rest)
    mask = _mask(response_mask)
    order, offsets = _grouped(index, len(mask), mask.device)
    by_std = _setting(config, "norm_adv_by_std_in_grpo", True)
    if not isinstance(by_std, bool):
        raise ValueError(
            f"algorithm.norm_adv_by_std_in_grpo is {by_std!r:.40}; wanted true or false"
        )
    scores = token_level_rewards.sum(-1)
    advantages = torch.empty_like(scores, dtype=torch.float32)
    advantages[order] = group_advantages(
        scores[order], offsets, std="sample" if by_std else "none", eps=1e-6 if by_std else None
    )
    rows = advantages[:, None] * response_mask
    if token_weight is not None:
        weights = token_weight.masked_fill(~mask, 0.0)
        if not bool(weights.isfinite().all()):
            raise ValueError("token_weight of a scored token is not finite; wanted a number")
        rows = rows * weights
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
    _check_rows("responses", responses, response_mask=response_mask)
    order, groups = _grouped(index, len(responses), responses.device)
    mask = _mask(response_mask)[order]
    lengths = mask.sum(1)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    alpha = _setting(config, "rrgkern_alpha", 4.0)
    if not is_real(alpha) or not 0 <= alpha < math.inf:
        raise ValueError(f"algorithm.rrgkern_alpha is {alpha!r:.40}; wanted a number, at least 0")
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
    if not isinstance(data, DataProto):
        raise TypeError(f"data is {type(data).__name__}; wanted verl's DataProto")
    batch = {*(data.batch.keys() if data.batch is not None else ()), *data.non_tensor_batch}
    if lacking := [n for n in _OF_BATCH if n not in batch]:
        raise ValueError(f"the batch has no {lacking[0]!r}, it has {', '.join(sorted(batch))}")
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


def _grouped(index: Any, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the order that brings each group together, and where groups begin in it.

    Names are the same where they are equal: 1 is not "1". Raises TypeError for what names nothing,
    ValueError unless there is a name for each row.
    """
    listed_index = listed(index.tolist() if hasattr(index, "tolist") else index, "index", "names")
    names = [unwrapped(name) for name in listed_index]
    if len(names) != rows:
        raise ValueError(f"index names the groups of {len(names)} rows, and there are {rows}")
    for row, name in enumerate(names):
        number = isinstance(name, numbers.Real) and not isinstance(name, numbers.Integral)
        if name is None or isinstance(name, bool) or number or not isinstance(name, Hashable):
            raise TypeError(f"index[{row}] is {name!r:.40}; wanted the name of a group, as uid")
    place: dict[Any, int] = {}
    for name in names:
        place.setdefault(name, len(place))
    of_row = torch.tensor([place[name] for name in names], dtype=torch.int64)
    counts = torch.bincount(of_row, minlength=len(place))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return of_row.argsort(stable=True).to(device), offsets.to(device)


def _check_rows(first: str, values: Any, **others: Any) -> None:
    """Raise unless all are tensors [B, T] of one shape; TypeError or ValueError says which."""
    for name, tensor in {first: values, **others}.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}; wanted a tensor [B, T]")
        if tensor.dim() != 2 or tensor.shape != values.shape:
            beside = "" if name == first else f" and {first} {tuple(values.shape)}"
            shape = f"{tuple(tensor.shape)}{beside}"
            raise ValueError(f"{name} has shape {shape}; wanted [B, T], the same of all")


def _mask(response_mask: Tensor) -> Tensor:
    """Return the mask as bool; ValueError for anything but 0 and 1, as a NaN or a weight."""
    if bool(((response_mask != 0) & (response_mask != 1)).any()):
        odd = response_mask[(response_mask != 0) & (response_mask != 1)][0]
        raise ValueError(f"response_mask holds {float(odd)}; wanted 1 on scored tokens, else 0")
    return response_mask.bool()


def _setting(config: Any, name: str, default: Any) -> Any:
    if config is None:
        return default
    if not hasattr(config, "get"):
        raise TypeError(f"config is {type(config).__name__}; wanted verl's algorithm section")
    return config.get(name, default)


def _count(info: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a count of a step, at least 1; ValueError for what is no number above 0.

    No tokens are a count too.
    """
    value: Any = unwrapped(info.get(name))
    if value is None:
        return default
    if name == "batch_num_tokens" and value == 0 and not isinstance(value, bool):
        return 1
    real = is_real(value)
    if real and name != "loss_scale_factor":
        real = value % 1 == 0
    if not real or not 0 < value < math.inf:
        raise ValueError(f"global_batch_info has {name}={value!r:.40}; wanted a count above 0")
    return value
