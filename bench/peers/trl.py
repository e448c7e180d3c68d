"""TRL 1.16: its chunked head, its kernel over logits, and GRPOTrainer's own loss."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from trl.kernels import ChunkedLogProbFunction, selective_log_softmax_and_entropy
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import selective_log_softmax

from bench.peers import clip_loss, scatter

# The tile that GRPOTrainer passes.
VOCABULARY_SLICE = 32768

# GRPOConfig's defaults.
ARGUMENTS: dict[str, Any] = {
    "delta": None,
    "use_bias_correction_kl": False,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "vespo_k_pos": 2.0,
    "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0,
    "steps_per_generation": 1,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
}


def head(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    # Scored rows only: TRL does so on GPUs itself, and does not on a CPU.
    logps = states(hidden[mask], weight, targets[mask])
    return clip_loss(scatter(logps, mask), advantages, old, mask)


def states(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logps, *_ = ChunkedLogProbFunction.apply(
        hidden, weight, None, targets, 1.0, VOCABULARY_SLICE, None, 1.0, ()
    )
    return logps


def logits(
    values: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    # As in GRPOTrainer: the kernel on a GPU, sequence by sequence elsewhere.
    logps = selective_log_softmax(values, targets, row_mask=mask)
    return clip_loss(logps, advantages, old, mask)


def rows(
    values: Tensor, targets: Tensor, *, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    logps, entropies = selective_log_softmax_and_entropy(
        values[None], targets[None], temperature=temperature
    )
    return logps[0], entropies[0] if entropy else None


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
    inputs = {"old_per_token_logps": old, "ref_per_token_logps": ref}
    value, _ = compute_loss(
        logps,
        torch.zeros_like(logps),
        mask,
        advantages,
        inputs,
        loss_type="grpo",
        importance_sampling_level=level,
        epsilon_low=eps_low,
        epsilon_high=eps_high,
        beta=beta,
    )
    return value


def compute_loss(
    logps: Tensor,
    entropy: Tensor,
    mask: Tensor,
    advantages: Tensor,
    inputs: dict[str, Any],
    *,
    loss_type: str,
    importance_sampling_level: str,
    beta: float,
    epsilon_low: float,
    epsilon_high: float,
    entropy_coef: float = 0.0,
    use_vllm: bool = False,
    world_size: int = 1,
    arguments: dict[str, Any] | None = None,
) -> tuple[Tensor, dict[str, list[float]]]:
    """`GRPOTrainer._compute_loss` on given log-probabilities instead of a model's.

    Args:
        logps, entropy: [S, T] of the policy, differentiable.
        mask: [S, T] bool.
        advantages: [S] or [S, T].
        inputs: what else the trainer finds in its batch: "old_per_token_logps",
            "ref_per_token_logps", "importance_sampling_ratio", "num_items_in_batch".
        arguments: fields of GRPOConfig that differ from its defaults.

    Returns:
        Loss and the trainer's logged metrics.
    """
    metrics: dict[str, list[float]] = defaultdict(list)
    args = SimpleNamespace(**(ARGUMENTS | (arguments or {})))
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps, entropy, None),
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        loss_type=loss_type,
        importance_sampling_level=importance_sampling_level,
        beta=beta,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        args=args,
        use_vllm=use_vllm,
        vllm_importance_sampling_correction=True,
        max_completion_length=mask.shape[1],
        current_gradient_accumulation_steps=1,
        accelerator=SimpleNamespace(
            num_processes=world_size,
            reduce=lambda values, reduction: values,
            gather=lambda values: values,
            pad_across_processes=lambda values, **_: values,
            sync_gradients=True,
        ),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        top_entropy_quantile=args.top_entropy_quantile,
        off_policy_mask_threshold=args.off_policy_mask_threshold,
        _entropy_bonus_enabled=entropy_coef != 0.0,
        entropy_coef=entropy_coef,
        use_adaptive_entropy=False,
        _metrics={"train": metrics},
    )
    trainer.get_high_entropy_mask = partial(GRPOTrainer.get_high_entropy_mask, trainer)
    one_token = torch.zeros(mask.shape[0], 1, dtype=torch.long, device=mask.device)
    batch: dict[str, Any] = {
        "prompt_ids": one_token,
        "prompt_mask": one_token + 1,
        "completion_ids": torch.zeros(mask.shape, dtype=torch.long, device=mask.device),
        "completion_mask": mask.to(logps.dtype),
        "advantages": advantages,
        **inputs,
    }
    return GRPOTrainer._compute_loss(trainer, None, batch), metrics
