"""verl 0.9.1: its fused head (Triton, CUDA only), and the eager losses of its trainer."""

from __future__ import annotations

from torch import Tensor

from bench.peers import clip_loss


def head(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    logps, _ = entropies(hidden.flatten(0, 1), weight, targets.flatten())
    return clip_loss(logps.view(targets.shape), advantages, old, mask)


def states(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return entropies(hidden, weight, targets)[0]


def entropies(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy

    logps, entropy = linear_cross_entropy(hidden, weight, targets, 1.0, "none")
    return logps, entropy


def rows(
    values: Tensor, targets: Tensor, *, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits

    scaled = values / temperature
    logps = logprobs_from_logits(scaled, targets, inplace_backward=False)
    return logps, entropy_from_logits(scaled) if entropy else None


def loss(
    logps: Tensor,
    old: Tensor,
    ref: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    level: str,
    eps_low: float,
    eps_high: float,
    beta: float,
) -> Tensor:
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty
    from verl.workers.config import ActorConfig

    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=eps_low,
        clip_ratio_high=eps_high,
    )
    keep, mode = mask.to(logps.dtype), "seq-mean-token-mean"
    policy, _ = get_policy_loss_fn("vanilla" if level == "token" else "gspo")(
        old_log_prob=old,
        log_prob=logps,
        advantages=advantages[:, None].expand_as(logps),
        response_mask=keep,
        loss_agg_mode=mode,
        config=config,
    )
    return policy + beta * agg_loss(kl_penalty(logps, ref, "k3"), keep, mode)
