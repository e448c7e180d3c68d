"""DPO and LN-DPO of TRL 1.16's DPOTrainer and of Liger 0.8.5 on the same log-probabilities."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from rrgkern import PreferencePairs, preference_loss
from tests.parity.padded import FP64, Padded, Result, assert_same, padded, peer

BETA = 0.3


def batch(seed: int, dtype: torch.dtype = torch.float64) -> Padded:
    """Three chosen sequences, then the three that they are preferred to."""
    return padded(seed, dtype=dtype, empty=False)


def by_us(data: Padded, length_normalized: bool) -> Result:
    n = len(data.mask) // 2
    logps = data.logps.flatten().clone().requires_grad_()
    out = preference_loss(
        logps,
        data.ref.flatten(),
        torch.arange(0, data.mask.numel() + 1, data.limit),
        PreferencePairs(
            torch.arange(n), torch.arange(n, 2 * n), torch.full((n,), 1 / n, dtype=logps.dtype)
        ),
        tau=BETA,
        length_normalized=length_normalized,
        mask=data.mask.flatten(),
    )
    (gradient,) = torch.autograd.grad(out.loss, logps)
    metrics = {name: float(value) for name, value in out.metrics.items()}
    return Result(out.loss.detach(), gradient.view_as(data.mask), metrics)


def by_trl(data: Padded, loss_type: str) -> Result:
    trainer_class = peer("trl.trainer.dpo_trainer").DPOTrainer
    logps = data.logps.clone().requires_grad_()
    # One token of prompt, which TRL's shift by one leaves out.
    mask = torch.nn.functional.pad(data.mask, (1, 0))

    def outputs(values: Tensor) -> SimpleNamespace:
        # The model returns 0 where the labels say -100.
        return SimpleNamespace(
            log_probs=torch.where(data.mask, values, 0.0),
            entropy=data.entropy,
            mean_logits=torch.zeros_like(values),
            is_top1=torch.zeros_like(data.mask),
        )

    metrics: dict[str, list[float]] = defaultdict(list)
    trainer = SimpleNamespace(
        model=torch.nn.Module().eval(),
        ref_model=lambda **_: outputs(data.ref),
        accelerator=SimpleNamespace(
            device="cpu", gather=lambda values: values, gather_for_metrics=lambda values: values
        ),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=False,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        beta=BETA,
        label_smoothing=0.0,
        use_weighting=False,
        _metrics={"eval": metrics},
        _total_train_tokens=0,
    )
    trainer.model.is_gradient_checkpointing = False
    inputs = {"input_ids": mask.long(), "completion_mask": mask.long()}
    loss = trainer_class._compute_loss(trainer, lambda **_: outputs(logps), inputs, False)
    (gradient,) = torch.autograd.grad(loss, logps)
    logged = {name: values[-1] for name, values in metrics.items()}
    return Result(loss.detach(), gradient, logged)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("loss_type", "normalized"), [("sigmoid", False), ("sigmoid_norm", True)])
def test_trl(loss_type: str, normalized: bool, seed: int) -> None:
    data = batch(seed)
    mine, theirs = by_us(data, normalized), by_trl(data, loss_type)
    assert_same(mine, theirs, **FP64)
    if not normalized:
        for our_name, trl_name in {
            "reward_positive": "rewards/chosen",
            "reward_negative": "rewards/rejected",
            "margin": "rewards/margins",
            "accuracy": "rewards/accuracies",
        }.items():
            assert mine.metrics[our_name] == pytest.approx(theirs.metrics[trl_name], rel=1e-6)


@pytest.mark.parametrize("length_normalized", [False, True])
def test_liger(length_normalized: bool) -> None:
    function = peer("liger_kernel.chunked_loss.dpo_loss").LigerFusedLinearDPOFunction
    data = batch(4)
    logps = data.logps.clone().requires_grad_()
    lengths = data.mask.sum(1) if length_normalized else torch.ones(len(data.mask))

    def halves(values: Tensor) -> tuple[Tensor, ...]:
        return (torch.where(data.mask, values, 0.0).sum(1) / lengths).chunk(2)

    (chosen, rejected), (ref_chosen, ref_rejected) = halves(logps), halves(data.ref)
    loss, *_ = function.preference_loss_fn(
        chosen, rejected, data.mask, ref_chosen, ref_rejected, beta=BETA
    )
    (gradient,) = torch.autograd.grad(loss, logps)
    assert_same(by_us(data, length_normalized), Result(loss.detach(), gradient, {}), **FP64)
