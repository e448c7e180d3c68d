"""Put one batch through every trainer's loss: `python -m experiments.trainers`.

It is the table of docs/other-trainers.md (`experiments.page_table`). Each row is the package's own
function on the same numbers, in fp64: two groups of four reports with 12, 3, 7, 5 and 2, 9, 4, 12
tokens. `make night` checks all rows but those of prime-rl 0.8.0 and NeMo-RL 0.6.0, which go beside
the others from their repositories by `pip install --no-deps`: they ask for Python 3.12 and 3.13,
which their losses do not need.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.page_table import PageTable, alone, alone_among_mocks, methods_of
from rrgkern import PolicyLoss, group_advantages, loss_scale, policy_loss

LENGTHS = torch.tensor([12, 3, 7, 5, 2, 9, 4, 12])
REWARDS = torch.tensor([1.0, 0.2, 0.5, 0.9, 0.0, 0.7, 0.7, 0.1], dtype=torch.float64)
EPS = 0.2


class Batch(NamedTuple):
    """logps, old: fp64 [8, 12]; mask: bool [8, 12]; advantages: fp64 [8]."""

    logps: Tensor
    old: Tensor
    mask: Tensor
    advantages: Tensor


class Row(NamedTuple):
    """Name what a package calls a loss, and compute it."""

    loss: str
    compute: Callable[[Batch], Tensor]


def draw() -> Batch:
    """Draw the batch: log-ratios of about 0.35, so that ratios clip on both sides."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(LENGTHS), int(LENGTHS.max()))
    logps = -3 * torch.rand(shape, generator=generator, dtype=torch.float64) - 0.05
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.arange(shape[1]) < LENGTHS[:, None]
    advantages = group_advantages(REWARDS, torch.tensor([0, 4, 8]), std="sample")
    return Batch(logps, (logps + 0.35 * noise).clamp(max=-1e-3), mask, advantages)


def of_ours() -> Iterator[Row]:
    """Yield the rows of `policy_loss`."""

    def compute(aggregation: str, spec: PolicyLoss, batch: Batch) -> Tensor:
        offsets = torch.cat([LENGTHS.new_zeros(1), LENGTHS.cumsum(0)])
        limit = batch.mask.shape[1] if aggregation == "dr_grpo" else None
        scale = loss_scale(aggregation, offsets, max_length=limit)
        logps, old = batch.logps[batch.mask], batch.old[batch.mask]
        return policy_loss(
            logps, batch.advantages, offsets, spec=spec, old=old, scale=scale.double()
        ).loss

    clip = PolicyLoss(eps_low=EPS, eps_high=EPS)
    for aggregation in ("grpo", "dr_grpo", "bnpo"):
        yield Row(aggregation, partial(compute, aggregation, clip))
    cispo = PolicyLoss(surrogate="cispo", eps_low=EPS, eps_high=EPS)
    yield Row("bnpo, surrogate cispo", partial(compute, "bnpo", cispo))
    sapo = PolicyLoss(surrogate="sapo", eps_low=EPS, eps_high=EPS)
    yield Row("grpo, surrogate sapo", partial(compute, "grpo", sapo))
    gspo = PolicyLoss(ratio_level="sequence_token", eps_low=EPS, eps_high=EPS)
    yield Row("grpo, ratio of a sequence", partial(compute, "grpo", gspo))
    gmpo = PolicyLoss(surrogate="gmpo", ratio_level="sequence", eps_low=EPS, eps_high=EPS)
    yield Row("grpo, surrogate gmpo", partial(compute, "grpo", gmpo))


def of_trl() -> Iterator[Row]:
    """Yield the rows of TRL's `GRPOTrainer._compute_loss`."""
    from bench.peers.trl import compute_loss

    def compute(loss: str, level: str, batch: Batch) -> Tensor:
        count = batch.mask.sum().double()
        inputs = {"old_per_token_logps": batch.old, "num_items_in_batch": count}
        tensors = (batch.logps, torch.zeros_like(batch.logps), batch.mask, batch.advantages)
        high = 5.0 if loss == "cispo" else EPS
        value, _ = compute_loss(
            *tensors,
            inputs,
            loss_type=loss,
            importance_sampling_level=level,
            beta=0.0,
            epsilon_low=EPS,
            epsilon_high=high,
        )
        return value

    named = {"dapo": "dapo (default)", "cispo": "cispo, bound 5"}
    for loss in ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "vespo", "luspo"):
        level = "sequence" if loss == "luspo" else "token"
        yield Row(named.get(loss, loss), partial(compute, loss, level))


def of_liger() -> Iterator[Row]:
    """Yield the rows of Liger's chunked loss, with hidden states that give the log-probabilities.

    Of a vocabulary of two, the first is the sampled one, and the head's weight is the identity.
    """
    loss = importlib.import_module("liger_kernel.chunked_loss").LigerFusedLinearGRPOLoss

    def compute(kind: str, level: str, batch: Batch) -> Tensor:
        sampled = batch.logps[..., None]
        hidden = torch.cat([sampled, (-sampled.exp()).log1p()], -1)
        module = loss(
            beta=0.0,
            compiled=False,
            use_ref_model=False,
            epsilon_low=EPS,
            epsilon_high=5.0 if kind == "cispo" else EPS,
            loss_type=kind,
            importance_sampling_level=level,
            max_completion_length=batch.mask.shape[1],
        )
        ids = torch.zeros(batch.mask.shape, dtype=torch.int64)
        weight, mask = torch.eye(2, dtype=hidden.dtype), batch.mask.to(hidden.dtype)
        value: Tensor
        value, _ = module(
            hidden, weight, ids, mask, batch.advantages, old_per_token_logps=batch.old
        )
        return value

    named = {"dapo": "dapo (default)", "cispo": "cispo, bound 5"}
    for kind in ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "vespo", "luspo"):
        level = "sequence" if kind == "luspo" else "token"
        yield Row(named.get(kind, kind), partial(compute, kind, level))


def of_verl() -> Iterator[Row]:
    """Yield the rows of verl's registered policy losses."""
    core = importlib.import_module("verl.trainer.ppo.core_algos")
    config = importlib.import_module("verl.workers.config").ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1
    )

    def compute(loss: str, aggregation: str, batch: Batch) -> Tensor:
        value, _ = core.get_policy_loss_fn(loss)(
            old_log_prob=batch.old,
            log_prob=batch.logps,
            advantages=batch.advantages[:, None].expand_as(batch.logps),
            response_mask=batch.mask.to(batch.logps.dtype),
            loss_agg_mode=aggregation,
            config=config,
            rollout_is_weights=None,
        )
        return value

    ways = {
        "vanilla (default)": ("vanilla", "token-mean"),
        "vanilla, seq-mean-token-mean": ("vanilla", "seq-mean-token-mean"),
        "vanilla, seq-mean-token-sum-norm": ("vanilla", "seq-mean-token-sum-norm"),
        "gspo": ("gspo", "seq-mean-token-mean"),
        "cispo": ("cispo", "token-mean"),
        "geo_mean": ("geo_mean", "token-mean"),
        "sapo": ("sapo", "seq-mean-token-mean"),
    }
    for name, way in ways.items():
        yield Row(name, partial(compute, *way))


def of_openrlhf() -> Iterator[Row]:
    """Yield the rows of OpenRLHF's `PolicyLoss`."""
    loss = alone("openrlhf.models.loss").PolicyLoss

    def compute(batch: Batch, **options: Any) -> Tensor:
        mask = batch.mask.to(batch.logps.dtype)
        advantages = batch.advantages[:, None].expand_as(batch.logps)
        value: Tensor = loss(**options)(batch.logps, batch.old, advantages, action_mask=mask)[0]
        return value

    yield Row("ppo (default)", compute)
    yield Row("ppo, a mean a report", partial(compute, token_level_loss=False))
    yield Row("gspo", partial(compute, policy_loss_type="gspo"))


def of_skyrl() -> Iterator[Row]:
    """Yield the rows of SkyRL's losses behind its own reductions of advantages."""
    utils = alone("skyrl.backends.skyrl_train.utils.ppo_utils")
    correction = SimpleNamespace(
        tis_ratio_type=None,
        sequence_mask_metric=None,
        outlier_token_is_threshold_low=None,
        outlier_token_is_threshold_high=None,
        token_mask_is_threshold_low=None,
        token_mask_is_threshold_high=None,
    )
    config = SimpleNamespace(
        policy_loss_type="regular",
        eps_clip_low=EPS,
        eps_clip_high=EPS,
        off_policy_correction=correction,
    )

    def compute(reduction: str, batch: Batch) -> Tensor:
        mask = batch.mask.to(batch.logps.dtype)
        advantages = utils.apply_loss_reduction_to_advantages_minibatch(
            batch.advantages[:, None] * mask, mask, reduction, len(mask), mask.shape[1]
        )
        value: Tensor = utils.ppo_policy_loss(batch.logps, batch.old, advantages, config, mask)[0]
        return value

    for reduction in ("token_mean", "sequence_mean", "seq_mean_token_sum_norm"):
        yield Row(reduction, partial(compute, reduction))


def of_prime() -> Iterator[Row]:
    """Yield the rows of prime-rl's losses, `old` being the engine's log-probabilities."""
    losses = alone_among_mocks("prime_rl.trainer.rl.loss")

    def compute(loss: str, config: SimpleNamespace, batch: Batch) -> Tensor:
        total = batch.logps.new_zeros(())
        for logps, old, mask, advantage in zip(*batch, strict=True):
            inputs = losses.LossInputs(
                trainer_logprobs=logps,
                inference_logprobs=old,
                ref_logprobs=None,
                advantages=advantage.expand_as(logps),
                loss_mask=mask,
            )
            total = total + getattr(losses, loss)(inputs, config).loss
        return total / batch.mask.sum()

    # the defaults of its `DefaultLossConfig` and `IPOLossConfig`
    taus = {"adv_tau": 1.0, "kl_tau": 1e-3}
    default = SimpleNamespace(dppo_mask_low=0.2, dppo_mask_high=0.2, **taus)
    yield Row("default", partial(compute, "default_loss_fn", default))
    ipo = SimpleNamespace(ipo_threshold=0.1, **taus)
    yield Row("ipo", partial(compute, "ipo_loss_fn", ipo))


def of_unsloth() -> Iterator[Row]:
    """Yield the rows of unsloth-zoo's `grpo_compute_loss`."""
    # Imported, it writes files of its own where it is called.
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", tempfile.mkdtemp())
    loss = alone("unsloth_zoo.rl_replacements").grpo_compute_loss

    def compute(kind: str, batch: Batch) -> Tensor:
        ids = torch.zeros(batch.mask.shape, dtype=torch.int64)
        mask = batch.mask.to(batch.logps.dtype)
        options: dict[str, Any] = {"loss_type": kind, "num_items_in_batch": batch.mask.sum()}
        options["max_completion_length"] = batch.mask.shape[1]
        tensors = (None, batch.logps, batch.old, None, ids, mask, 0.0, batch.advantages)
        value: Tensor = loss(*tensors, **options)[0]
        return value

    for kind in ("grpo", "dr_grpo", "bnpo", "dapo"):
        yield Row(kind, partial(compute, kind))


def of_nemo() -> Iterator[Row]:
    """Yield the rows of NeMo-RL's `ClippedPGLossFn`, whose first place of a row is a prompt's."""
    place = "nemo_rl.algorithms"
    losses = alone_among_mocks(
        f"{place}.loss.loss_functions", f"{place}.loss.interfaces", f"{place}.utils"
    )

    def compute(batch: Batch, **options: Any) -> Tensor:
        config = losses.ClippedPGLossConfig(reference_policy_kl_penalty=0.0, **options)
        advantages = batch.advantages[:, None].expand_as(batch.logps)
        tensors = {"token_mask": batch.mask, "advantages": advantages}
        tensors |= {"prev_logprobs": batch.old, "generation_logprobs": batch.old}
        data = {name: torch.nn.functional.pad(x, (1, 0)) for name, x in tensors.items()}
        data["sample_mask"] = torch.ones(len(batch.mask))
        counts = torch.tensor(len(batch.mask)), batch.mask.sum()
        value: Tensor = losses.ClippedPGLossFn(config)(batch.logps, data, *counts)[0]
        return value

    gspo: dict[str, Any] = {"sequence_level_importance_ratios": True, "token_level_loss": False}
    yield Row("clipped (default)", compute)
    yield Row("clipped, a mean a report", partial(compute, token_level_loss=False))
    yield Row("sequence-level ratios", partial(compute, **gspo))
    yield Row("use_cispo", partial(compute, use_cispo=True))


def of_swift() -> Iterator[Row]:
    """Yield the rows of ms-swift's `GRPOTrainer._compute_loss_and_metrics`, at its defaults."""
    inner = ("_compute_fipo_influence", "_undo_gradient_accumulation_scaling")
    place = ("swift", "rlhf_trainers/grpo_trainer.py", "GRPOTrainer")
    of_metrics: dict[str, Any] = {"nanmin": torch.nan_to_num, "nanmax": torch.nan_to_num}
    trainer = methods_of(*place, (*inner, "_compute_loss_and_metrics"), torch=torch, **of_metrics)
    nothing = SimpleNamespace(gather_for_metrics=lambda value: value, num_processes=1)

    def compute(loss: str, level: str, batch: Batch) -> Tensor:
        self = SimpleNamespace(
            accelerator=nothing,
            args=SimpleNamespace(delta=None),
            beta=0.0,
            chord_sft_iterator=None,
            compute_entropy=False,
            disable_rollout_importance_sampling=True,
            epsilon_high=5.0 if loss == "cispo" else EPS,
            epsilon_low=EPS,
            fipo_clip_high_only=True,
            fipo_clip_range=0.2,
            fipo_gamma=2 ** (-1 / 32),
            fipo_safety_threshold=4.0,
            _has_teacher=False,
            importance_sampling_level=level,
            kl_in_reward=False,
            log_rollout_offpolicy_metrics=False,
            loss_type=loss,
            max_completion_length=batch.mask.shape[1],
            model=SimpleNamespace(training=False),
            num_generations=4,
            off_policy_sequence_mask_delta=None,
            overlong_filter=False,
            real_tau=0.5,
            rollout_importance_sampling_mode=None,
            sdar_loss_coef=0.0,
            tau_neg=1.05,
            tau_pos=1.0,
        )
        self._get_per_token_logps_and_entropies = lambda *_, **__: (batch.logps, None)
        for name in inner:
            setattr(self, name, partial(getattr(trainer, name), self))
        inputs = SimpleNamespace(
            completion_mask=batch.mask,
            truncated_mask=None,
            advantages=batch.advantages[:, None].expand_as(batch.logps),
            old_per_token_logps=batch.old,
            rollout_per_token_logps=None,
            teacher_per_token_logps=None,
            num_items_in_batch=batch.mask.sum(),
        )
        value: Tensor = trainer._compute_loss_and_metrics(self, None, {}, inputs)[0]
        return value

    named = {"grpo": "grpo (default)", "cispo": "cispo, bound 5"}
    for loss in ("grpo", "dr_grpo", "bnpo", "dapo", "cispo", "sapo", "real", "fipo"):
        yield Row(named.get(loss, loss), partial(compute, loss, "token"))
    yield Row("grpo, sequence", partial(compute, "grpo", "sequence"))


def cells(rows: Callable[[], Iterator[Row]]) -> Iterator[list[str]]:
    """Yield the cells of a package's rows."""
    batch = draw()
    for row in list(rows()):
        logps = batch.logps.clone().requires_grad_()
        value = row.compute(batch._replace(logps=logps))
        (slope,) = torch.autograd.grad(value, logps)
        pulls = [float((slope * batch.mask)[k].norm()) for k in (0, 1)]
        numbers = [value.item(), float((slope * batch.mask).norm()), *pulls]
        yield [row.loss, *(f"{number:.5f}" for number in numbers)]


PACKAGES = {
    "rrgkern": of_ours,
    "trl": of_trl,
    "liger-kernel": of_liger,
    "verl": of_verl,
    "openrlhf": of_openrlhf,
    "skyrl": of_skyrl,
    "unsloth-zoo": of_unsloth,
    "prime-rl": of_prime,
    "nemo-rl": of_nemo,
    "ms-swift": of_swift,
}

TABLE = PageTable(
    "experiments.trainers",
    "other-trainers.md",
    ("loss", "value", "gradient's norm", "pull on 12 tokens", "pull on 3"),
    {package: partial(cells, rows) for package, rows in PACKAGES.items()},
)


if __name__ == "__main__":
    sys.exit(TABLE.main(sys.argv[1:]))
