"""Loss and gradient of TRL 1.16's GRPOTrainer on the same numbers, for every loss it has.

TRL pads: its tensors are [S, T] with a completion mask, ours are the tokens that the mask keeps.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, loss_scale, policy_loss
from tests.parity.padded import peer

GRPOTrainer = peer("trl.trainer.grpo_trainer").GRPOTrainer

# Powers of two, and 16 in all, so that every scale is exact in fp32.
LENGTHS = (4, 2, 8, 2)
LIMIT = 8
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
CASES = [
    (loss, level, beta, weighted, sampler)
    for loss, level, (beta, weighted), sampler in itertools.product(
        LOSSES,
        ("token", "sequence"),
        ((0.0, False), (0.3, False), (0.3, True)),
        (None, "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    )
    if not (loss == "luspo" and level == "token")
    and not (loss == "vespo" and (level == "sequence" or str(sampler).startswith("sequence")))
]


def padded(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    shape = (len(LENGTHS), LIMIT)
    logps = -normal(*shape).abs()
    old = logps + 0.4 * normal(*shape)
    return {
        "logps": logps,
        "old": old,
        "ref": logps + 0.5 * normal(*shape),
        "sampler": old + 0.3 * normal(*shape),
        "entropy": normal(*shape).abs(),
        "advantages": normal(len(LENGTHS)),
        "mask": torch.arange(LIMIT)[None, :] < torch.tensor(LENGTHS)[:, None],
    }


def by_trl(
    p: dict[str, Tensor], loss: str, level: str, beta: float, weighted: bool, sampler: str | None
) -> tuple[Tensor, Tensor]:
    logps = p["logps"].clone().requires_grad_()
    accelerator = SimpleNamespace(
        num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x
    )
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (logps, p["entropy"], None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        loss_type=loss,
        # TRL bounds CISPO's weight by epsilon_high itself, the others by 1 + epsilon_high.
        epsilon_low=0.1,
        epsilon_high=1.15 if loss == "cispo" else 0.15,
        args=SimpleNamespace(
            use_bias_correction_kl=weighted,
            delta=1.3,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.25,  # exact in fp32, to which TRL rounds it
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
            steps_per_generation=1,
        ),
        use_vllm=sampler is not None,
        vllm_importance_sampling_correction=sampler is not None,
        current_gradient_accumulation_steps=1,
        max_completion_length=LIMIT,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
    )
    inputs: dict[str, Any] = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": torch.zeros(len(LENGTHS), LIMIT, dtype=torch.long),
        "completion_mask": p["mask"].double(),
        "advantages": p["advantages"],
        "old_per_token_logps": p["old"],
        "ref_per_token_logps": p["ref"],
        "num_items_in_batch": torch.tensor(float(sum(LENGTHS))),
    }
    if sampler is not None:
        inputs["importance_sampling_ratio"] = sampler_ratio(p, sampler)
    value = GRPOTrainer._compute_loss(trainer, None, inputs)
    (gradient,) = torch.autograd.grad(value, logps)
    return value.detach(), gradient[p["mask"]]


def sampler_ratio(p: dict[str, Tensor], mode: str) -> Tensor:
    """Return what TRL computes from the rollout engine's log-probabilities when it generates."""
    level, rule = mode.split("_")
    log = (p["old"] - p["sampler"]) * p["mask"]
    ratio = (log.sum(-1, keepdim=True) if level == "sequence" else log).exp()
    if rule == "truncate":
        return ratio.clamp(min=0.8, max=1.3)
    return ratio.masked_fill((ratio < 0.8) | (ratio > 1.3), 0.0)


def by_us(
    p: dict[str, Tensor], loss: str, level: str, beta: float, weighted: bool, sampler: str | None
) -> tuple[Tensor, Tensor]:
    own = loss in ("cispo", "sapo", "luspo", "vespo")
    surrogate = loss if own else "clip"
    aggregation = {"sapo": "grpo", "luspo": "sum", "cispo": "dapo", "vespo": "dapo"}.get(loss, loss)
    sampler_level, sampler_mode = (sampler or "token_truncate").split("_")
    spec = PolicyLoss(
        surrogate=surrogate,
        ratio_level=level,
        eps_low=None if loss == "cispo" else 0.1,
        eps_high=0.15,
        dual_clip=1.3 if surrogate in ("clip", "luspo") else None,
        beta=beta,
        kl_ratio_weight=weighted,
        sampler_level=sampler_level,
        sampler_mode=sampler_mode,
        sampler_min=0.8,
        sampler_max=1.3,
        sapo_tau_neg=1.25,
    )
    offsets = torch.tensor((0, *LENGTHS)).cumsum(0)
    options: dict[str, Any] = {
        "dr_grpo": {"max_length": LIMIT},
        "dapo": {"total_tokens": sum(LENGTHS)},
    }.get(aggregation, {})
    logps = p["logps"][p["mask"]].requires_grad_()
    out = policy_loss(
        logps,
        p["advantages"],
        offsets,
        scale=loss_scale(aggregation, offsets, **options),
        old=p["old"][p["mask"]],
        ref=p["ref"][p["mask"]],
        sampler=None if sampler is None else p["sampler"][p["mask"]],
        spec=spec,
    )
    (gradient,) = torch.autograd.grad(out.loss, logps)
    return out.loss.detach(), gradient


@pytest.mark.parametrize("case", CASES, ids=["-".join(map(str, case)) for case in CASES])
def test_equals_trl(case: tuple[Any, ...]) -> None:
    p = padded(CASES.index(case))
    theirs, ours = by_trl(p, *case), by_us(p, *case)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-11, atol=1e-14)
