"""Sum a softmax over the columns other than the target; close to log-probability and entropy.

A softmax that has collapsed on its target loses everything in `z_t - logsumexp(z)`: at a margin
of 20 nats fp32 returns exactly 0. So the target never enters the sum. With the log-odds against
the target, d = logsumexp_{j != t}(z_j / T) - z_t / T,

    logp    = -softplus(d)
    entropy = H(p_t, 1 - p_t) + (1 - p_t) * entropy of the others      (chain rule)

and no term cancels. Logits enter only as differences to a row maximum: logits around -120 keep
the precision of logits around 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LOG2E = math.log2(math.e)
# Nats at which a probability is 0 in fp64 too: -inf is moved up to here before it meets that 0.
FAR = 1e4


class OnlineSoftmax(NamedTuple):
    """Running sums over the columns other than the target, each [N].

    `max` is their largest logit (before the temperature), `sumexp` = sum exp((z - max) / T) and
    `weighted` = sum ((max - z) / T) exp((z - max) / T), which only the entropy needs. The kernels
    call them top, mass and tilt.
    """

    max: Tensor
    sumexp: Tensor
    weighted: Tensor


class SoftmaxStats(NamedTuple):
    """Results of each row, and the two numbers from which the backward rebuilds the softmax.

    p_j = exp((z_j - shift) / T - lognorm), `shift` being the largest logit. Two numbers instead of
    one logsumexp because fp32 cannot hold -120 + 1e-6. `entropy` has size 0 when not asked for.
    """

    logps: Tensor
    entropy: Tensor
    shift: Tensor
    lognorm: Tensor

    @staticmethod
    def empty(like: Tensor, rows: int, dtype: torch.dtype, entropy: bool) -> SoftmaxStats:
        """Room for the results of so many rows."""
        sizes = (rows, rows if entropy else 0, rows, rows)
        return SoftmaxStats(*(like.new_empty(size, dtype=dtype) for size in sizes))

    def rows(self, block: slice | Tensor) -> SoftmaxStats:
        """Select rows; a part that was not asked for stays empty."""
        return SoftmaxStats(*(part[block] if len(part) else part for part in self))

    def scattered(self, rows: Tensor, count: int, entropy: bool) -> SoftmaxStats:
        """Put the results at `rows` of `count`, 0 elsewhere; no entropy stays of size 0."""
        whole = {
            name: part.new_zeros(count).index_copy_(0, rows, part)
            for name, part in self._asdict().items()
            if name != "entropy" or entropy
        }
        return self._replace(**whole)


class Coefficients(NamedTuple):
    """Gradients [N] of the objective by each logp and, unless None, by each entropy."""

    coef: Tensor
    coef_entropy: Tensor | None

    def active(self) -> Tensor:
        """Mark the rows [N] with a coefficient other than 0."""
        active = self.coef != 0
        return active if self.coef_entropy is None else active | (self.coef_entropy != 0)

    def rows(self, block: slice | Tensor) -> Coefficients:
        """Select rows."""
        entropy = None if self.coef_entropy is None else self.coef_entropy[block]
        return Coefficients(self.coef[block], entropy)


def stats_dtype(dtype: torch.dtype) -> torch.dtype:
    """fp64 statistics for fp64 inputs, fp32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + exp(x)), exact at both ends.

    `F.softplus` is linear from 20 on, too early in fp64.
    """
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def merge(a: OnlineSoftmax, b: OnlineSoftmax, temperature: float) -> OnlineSoftmax:
    """Add the sums over two disjoint sets of columns."""
    top = torch.maximum(a.max, b.max)

    def rescaled(part: OnlineSoftmax) -> tuple[Tensor, Tensor]:
        # An empty part, or one of -inf logits only, has the sum 0 and keeps it.
        # Bounded: far above, an infinite drop would meet a decay of 0.
        drop = torch.where(part.sumexp > 0, (top - part.max) / temperature, 0.0).clamp(max=FAR)
        decay = torch.exp(-drop)
        return part.sumexp * decay, (part.weighted + drop * part.sumexp) * decay

    (sumexp_a, weighted_a), (sumexp_b, weighted_b) = rescaled(a), rescaled(b)
    return OnlineSoftmax(top, sumexp_a + sumexp_b, weighted_a + weighted_b)


class RowSums(NamedTuple):
    """Sums over the columns seen so far without the target's, and the target's logit.

    [N] each. `others` is fp64: next to the 1 of a leading column, fp32 would drop a tail of many
    small ones.
    """

    others: OnlineSoftmax
    target_logit: Tensor

    @staticmethod
    def empty(like: Tensor, rows: int, dtype: torch.dtype) -> RowSums:
        """Begin with no column; the target's logit is NaN until its tile comes."""
        others = OnlineSoftmax(*like.new_zeros((3, rows), dtype=torch.float64))
        others.max.fill_(-torch.inf)
        return RowSums(others, like.new_full((rows,), torch.nan, dtype=dtype))

    def rows(self, block: slice) -> RowSums:
        """Views of a block of rows, to be updated in place."""
        others = OnlineSoftmax(*(part[block] for part in self.others))
        return RowSums(others, self.target_logit[block])

    def close(self, temperature: float, entropy: bool) -> SoftmaxStats:
        """Turn the sums over all columns into the results and what the backward needs.

        Computed in the dtype of the sums; the results have that of `target_logit`.
        """
        others, target_logit = self
        log_mass = others.sumexp.log()
        log_odds = (others.max - target_logit) / temperature + log_mass
        # An overflow upstream, which must not pass for certainty.
        log_odds = torch.where(target_logit == torch.inf, torch.nan, log_odds)
        against, in_favour = softplus(log_odds), softplus(-log_odds)
        target_leads = target_logit >= others.max
        stats = SoftmaxStats(
            logps=-against,
            entropy=_entropy(others, log_mass, log_odds) if entropy else against.new_empty(0),
            shift=torch.where(target_leads, target_logit, others.max),
            lognorm=torch.where(target_leads, against, log_mass + in_favour),
        )
        return SoftmaxStats(*(part.to(target_logit.dtype) for part in stats))


def _entropy(others: OnlineSoftmax, log_mass: Tensor, log_odds: Tensor) -> Tensor:
    p_target, p_others = torch.sigmoid(-log_odds), torch.sigmoid(log_odds)
    # 0 log 0 = 0: a side of probability 0 has an infinite or undefined log. NaN stays NaN.
    from_target = torch.where(p_target != 0, p_target * softplus(log_odds), 0.0)
    of_others = softplus(-log_odds) + log_mass + others.weighted / others.sumexp
    return from_target + torch.where(p_others != 0, p_others * of_others, 0.0)


class TokenLogps(NamedTuple):
    """Log-probability of each target, and entropy of each distribution, in nats.

    Both have the shape of `targets` and are fp32 (fp64 for fp64 inputs). `entropy` is None when it
    was not asked for.
    """

    logps: Tensor
    entropy: Tensor | None
