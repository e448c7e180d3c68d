"""The gap between the sampler's log-probabilities and the trainer's: logged at every step, bounded.

A sampler that has missed a push, or sees other images, tokens or another temperature than the
trainer, still returns plausible reports. Their log-probabilities tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rrgtrain.algorithms import Algorithm, Group
from rrgtrain.algorithms.group import Member, members
from rrgtrain.errors import UserError
from rrgtrain.policy.policy import Policy
from rrgtrain.ranks import ranks
from rrgtrain.schema import RlSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.gradients import Computed, with_rollout_logps
from rrgtrain.train.micro_batch import with_images

# Mean |log-prob of the trainer - log-prob of the sampler| that is still rounding.
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}
# Groups of a batch that are computed anew where the update's own forward cannot be compared.
FEW = 8
# A temperature is blamed where it takes away that much of the gap.
EXPLAINED = 0.8


@dataclass(frozen=True)
class Compared:
    """Log-probabilities fp64 [N] of the same sampled tokens, and bool [N]: the prompt has images.

    allowed: by how much the sampler's may be above the trainer's, being those of a nucleus.
    """

    trainer: np.ndarray
    sampler: np.ndarray
    images: np.ndarray
    allowed: float = 0.0

    @property
    def gaps(self) -> np.ndarray:
        """[N] |sampler - trainer|, less what a nucleus explains."""
        above = self.sampler - self.trainer
        return np.maximum(above - self.allowed, 0.0) + np.maximum(-above, 0.0)

    def mean(self, chosen: np.ndarray | None = None) -> float:
        """Compute the mean gap of the `chosen` tokens; NaN of none.

        The order of tokens changes no bit."""
        gaps = self.gaps if chosen is None else self.gaps[chosen]
        return float(np.sort(gaps).mean()) if len(gaps) else math.nan

    def row(self) -> dict[str, float]:
        """Compute the row that a step logs of the gap.

        Mean and 99th percentile of the gap, and the effective sample size of r = trainer / sampler,
        (sum r)^2 / (N sum r^2), where both are of the same distribution."""
        row = {"sampler/gap_mean": self.mean()}
        row["sampler/gap_p99"] = float(np.quantile(self.gaps, 0.99))
        if not self.allowed:
            ratio = np.sort(np.exp(self.trainer - self.sampler))
            row["sampler/ess"] = float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum()))
        return row


class SamplerWatch:
    """Compares what the sampler said of its tokens with the trainer, before weights change.

    The update's own forward serves where it is deterministic: all members that carry gradient, at
    no cost. With dropout, or where no member carries gradient, `FEW` groups are computed anew in
    evaluation mode.

    compares_updates: whether the log-probabilities of an update serve, without dropout.
    """

    def __init__(
        self, policy: Policy, algorithm: Algorithm, settings: RlSettings, max_gap: float | None
    ) -> None:
        """The limit is `rollout.max_gap`, else what is `ROUNDING` in the policy's dtype."""
        self._policy, self._algorithm, self._settings = policy, algorithm, settings
        self._limit = ROUNDING[policy.dtype] if max_gap is None else max_gap
        self.compares_updates = not any(
            isinstance(module, torch.nn.Dropout) and module.p > 0
            for module in policy.model.modules()
        )
        self._agreed = False

    def __call__(self, batch: Batch, computed: Sequence[Computed]) -> dict[str, float]:
        """The step's row, empty where the engine reports no log-probabilities.

        computed: this rank's micro-batches with the log-probabilities [T] of all their tokens, on
            the host.
        Raises UserError where the mean gap is above the limit; the line names the likely cause.
        """
        groups = batch.groups
        pairs = [(micro.groups, logps) for micro, logps in computed]
        compared = self._of_all_ranks(pairs) if self.compares_updates else None
        if compared is None or not len(compared.trainer):
            compared = self._anew(_few(groups), self._settings.temperature)
        if not len(compared.trainer):
            return {}
        row = compared.row()
        if not row["sampler/gap_mean"] <= self._limit:
            without = self._anew_without(groups)
            row = without.row() if without.mean() <= self._limit else row
        gap = row["sampler/gap_mean"]
        if not gap <= self._limit:
            raise UserError(
                f"trainer and sampler differ by {gap:.3g} nats a token on average, "
                f"{row['sampler/gap_p99']:.3g} at the 99th percentile, more than "
                f"rollout.max_gap={self._limit:g}; likely {self._cause(groups, compared)}"
            )
        self._agreed = True
        return row

    def _cause(self, groups: list[Group], compared: Compared) -> str:
        own = self._settings.temperature
        if compared.images.all():  # those without carried no gradient
            compared = self._anew(_drawn(groups), own)
        with_, without = compared.mean(compared.images), compared.mean(~compared.images)
        if without <= self._limit < with_:
            return (
                f"images of another size or preprocessing: prompts with images differ by "
                f"{with_:.2g}, those without by {without:.2g} (policy.max_pixels, "
                "policy.min_pixels)"
            )
        few = _few(groups)
        gap = self._anew(few, own).mean()
        best, left = self._temperature(few)
        if left <= (1 - EXPLAINED) * gap:
            return (
                f"another temperature: at {best:.3g} in the place of rl.temperature={own:g} they "
                f"would differ by {left:.2g}"
            )
        if self._agreed:
            return (
                "weights that the sampler has not taken over, since both agreed in the step "
                "before; restart it"
            )
        return (
            "images of another size (policy.max_pixels), other prompt tokens (tokenizer, chat "
            "template), or other weights or another dtype in the sampler"
        )

    def _anew_without(self, groups: list[Group]) -> Compared:
        """The same where `Policy.never_sampled` have no share in the trainer's softmax either.

        vLLM's log-probs are those of what it draws from. A trained policy gives such ids nothing, a
        random one of few tokens does.
        """
        policy = replace(self._policy, left_out=self._policy.never_sampled)
        return self._anew(_drawn(groups), self._settings.temperature, policy)

    def _temperature(self, few: list[Group]) -> tuple[float, float]:
        """The temperature at which the trainer is nearest to the sampler, and the gap there."""
        width = math.log(4.0) / 6
        grid = [self._settings.temperature * math.exp(k * width) for k in range(-6, 7)]
        gaps = {t: self._anew(few, t).mean() for t in grid}
        for _ in range(6):
            best, width = min(gaps, key=lambda t: gaps[t]), width / 2
            for t in (best * math.exp(-width), best * math.exp(width)):
                gaps[t] = self._anew(few, t).mean()
        best = min(gaps, key=lambda t: gaps[t])
        return best, gaps[best]

    def _anew(self, few: list[Group], temperature: float, policy: Policy | None = None) -> Compared:
        settings = replace(self._settings, temperature=temperature)
        batch = Batch.of(few, torch.ones(len(members(few))), settings)
        loss = self._algorithm.loss
        logps = with_rollout_logps(policy or self._policy, None, batch, loss, settings).old
        assert logps is not None
        own = [(group, part) for group, part in _by_group(few, logps) if _is_own(group)]
        return self._of_all_ranks([([group], part) for group, part in own])

    def _of_all_ranks(self, pairs: Sequence[tuple[list[Group], Tensor]]) -> Compared:
        """The sampled tokens of all ranks' micro-batches."""
        parts = ranks.gather(_compared(pairs))
        trainer, sampler, images = (np.concatenate(values) for values in zip(*parts, strict=True))
        top_p = self._settings.top_p
        return Compared(trainer, sampler, images, -math.log(top_p) if top_p < 1 else 0.0)


def _compared(
    pairs: Sequence[tuple[list[Group], Tensor]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    trainer, sampler, images = [np.zeros(0)], [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for groups, out in pairs:
        for group, part in _by_group(groups, out.double()):
            sees = with_images([group.prompt])
            lengths = [len(m.ids) for m in group.members]
            for member, logps in zip(group.members, part.split(lengths), strict=True):
                if _was_drawn(member) and member.sampler_logps is not None:
                    trainer.append(logps.numpy())
                    sampler.append(member.sampler_logps.double().numpy())
                    images.append(np.full(len(logps), sees))
    return np.concatenate(trainer), np.concatenate(sampler), np.concatenate(images)


def _by_group(groups: list[Group], out: Tensor) -> list[tuple[Group, Tensor]]:
    sizes = [sum(len(m.ids) for m in group.members) for group in groups]
    return list(zip(groups, out.split(sizes), strict=True))


def _few(groups: list[Group]) -> list[Group]:
    """The first groups of a batch, which is in random order, with what was sampled for them."""
    return _drawn(groups)[:FEW]


def _drawn(groups: list[Group]) -> list[Group]:
    """Keep what was sampled, what the loss masks included."""
    drawn = [
        replace(g, members=tuple(replace(m, scored=True) for m in g.members if _was_drawn(m)))
        for g in groups
    ]
    return [group for group in drawn if group.members]


def _was_drawn(member: Member) -> bool:
    return member.origin == "sampled" and member.sampler_logps is not None


def _is_own(group: Group) -> bool:
    return ranks.size() == 1 or group.rank == ranks.rank()
