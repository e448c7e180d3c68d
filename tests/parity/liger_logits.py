"""A batch of logits for Liger's Triton loss, interpreted on a CPU, and for this library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern import PolicyLoss
from tests.parity.padded import Padded, Result, ours, padded, peer

liger = peer("liger_kernel.transformers.grpo_loss")

VOCABULARY, TEMPERATURE = 37, 0.8
# Both compute in fp32, from the same fp32 logits.
FP32 = {"rtol": 1e-4, "atol": 2e-6}
AGGREGATION = {"sapo": "grpo", "cispo": "dapo", "vespo": "dapo"}


def spec_of(
    loss: str,
    level: str,
    kl: tuple[float, bool] = (0.0, False),
    delta: float | None = None,
    **options: Any,
) -> PolicyLoss:
    """Return what Liger computes for these arguments and clip bounds of 0.1 and 0.15."""
    return PolicyLoss(
        surrogate=loss if loss in AGGREGATION else "clip",
        ratio_level=level,
        eps_low=None if loss == "cispo" else 0.1,
        eps_high=0.15,
        dual_clip=delta,
        beta=kl[0],
        kl_ratio_weight=kl[1],
        **options,
    )


def clip_bounds(loss: str) -> dict[str, float]:
    """Liger's names of them; as in TRL, CISPO's weight is bounded by eps_high itself."""
    return {"eps_low": 0.1, "eps_high": 1.15 if loss == "cispo" else 0.15}


@dataclass(frozen=True)
class Logits:
    """[S, T+1, V] logits and [S, T] targets; the log-probabilities of `data` are theirs."""

    logits: Tensor
    targets: Tensor
    data: Padded

    @staticmethod
    def draw(seed: int, *, empty: bool = True) -> Logits:
        generator = torch.Generator().manual_seed(seed)
        data = padded(seed, dtype=torch.float32, empty=empty)
        rows, width = data.mask.shape
        given = Logits(
            logits=torch.randn(rows, width + 1, VOCABULARY, generator=generator),
            targets=torch.randint(0, VOCABULARY, (rows, width), generator=generator),
            data=data,
        )
        logps = given.logps(given.logits)
        # The differences to the old policy, the reference and the sampler are those of `data`.
        shift = logps - data.logps
        return given.with_data(
            logps=logps, old=data.old + shift, ref=data.ref + shift, sampler=data.sampler + shift
        )

    def with_data(self, **tensors: Tensor) -> Logits:
        return replace(self, data=self.data.changed(**tensors))

    def padded_by(self, extra: int) -> Logits:
        """The same batch, padded `extra` tokens further."""
        two_d = ("logps", "old", "ref", "sampler", "entropy", "mask")
        return Logits(
            logits=F.pad(self.logits, (0, 0, 0, extra)),
            targets=F.pad(self.targets, (0, extra)),
            data=self.data.changed(**{k: F.pad(getattr(self.data, k), (0, extra)) for k in two_d}),
        )

    def logps(self, logits: Tensor) -> Tensor:
        log_p = (logits[:, :-1] / TEMPERATURE).log_softmax(-1)
        return log_p.gather(-1, self.targets[..., None])[..., 0]

    def gradient(self, by_logps: Tensor) -> Tensor:
        """Gradient by the logits from the gradient by the log-probabilities."""
        logits = self.logits.clone().requires_grad_()
        return torch.autograd.grad(self.logps(logits), logits, by_logps)[0]

    def by_liger(self, loss: str, **options: Any) -> Result:
        logits = self.logits.clone().requires_grad_()
        value, metrics = self.loss_of_liger(logits, loss, **options)
        (gradient,) = torch.autograd.grad(value, logits)
        return Result(value.detach(), gradient, dict(enumerate(metrics)))

    def loss_of_liger(
        self, logits: Tensor, loss: str, *, inplace: bool = False, **options: Any
    ) -> tuple[Tensor, list[Tensor]]:
        return liger.triton_grpo_loss(
            logits,
            self.data.old.contiguous(),
            self.data.ref.contiguous(),
            self.targets,
            self.data.advantages,
            completion_mask=self.data.mask.int().contiguous(),
            temperature=TEMPERATURE,
            **clip_bounds(loss),
            inplace=inplace,
            loss_type=loss,
            max_completion_length=self.data.limit,
            reduce=True,
            **options,
        )


def by_both(
    given: Logits,
    loss: str,
    level: str,
    kl: tuple[float, bool] = (0.0, False),
    delta: float | None = None,
) -> tuple[Result, Result]:
    mine = ours(
        given.data, spec_of(loss, level, kl, delta), AGGREGATION.get(loss, loss), packed=False
    )
    theirs = given.by_liger(
        loss, beta=kl[0], importance_sampling_level=level, delta=delta, use_bias_correction_kl=kl[1]
    )
    return Result(mine.loss, given.gradient(mine.gradient), mine.metrics), theirs
