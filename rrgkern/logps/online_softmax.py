"""From a sweep over the columns other than the target to log-probability and entropy.

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


class Others(NamedTuple):
    """Running sums over the columns other than the target, each [N].

    `top` is their largest logit (before the temperature), `mass` = sum exp((z - top) / T) and
    `tilt` = sum ((top - z) / T) exp((z - top) / T), which only the entropy needs.
    """

    top: Tensor
    mass: Tensor
    tilt: Tensor


class RowStats(NamedTuple):
    """Per row: the two results, and (`shift`, `lognorm`) from which the backward rebuilds

    p_j = exp((z_j - shift) / T - lognorm). Two numbers instead of one logsumexp because fp32
    cannot hold -120 + 1e-6.
    """

    logps: Tensor
    entropy: Tensor
    shift: Tensor
    lognorm: Tensor


def stats_dtype(dtype: torch.dtype) -> torch.dtype:
    """fp64 statistics for fp64 inputs, fp32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), exact at both ends; `F.softplus` is linear from 20 on, too early in fp64."""
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def merge(a: Others, b: Others, temperature: float) -> Others:
    """The sums over two disjoint sets of columns."""
    top = torch.maximum(a.top, b.top)

    def rescaled(part: Others) -> tuple[Tensor, Tensor]:
        # An empty part, or one of -inf logits only, has mass 0 and keeps it.
        drop = torch.where(part.mass > 0, (top - part.top) / temperature, 0.0)
        decay = torch.exp(-drop)
        return part.mass * decay, (part.tilt + drop * part.mass) * decay

    (mass_a, tilt_a), (mass_b, tilt_b) = rescaled(a), rescaled(b)
    return Others(top, mass_a + mass_b, tilt_a + tilt_b)


def finish(others: Others, target_logit: Tensor, temperature: float, entropy: bool) -> RowStats:
    """Close the sweep, in the dtype of the sums; the results have that of `target_logit`."""
    log_mass = others.mass.log()
    log_odds = (others.top - target_logit) / temperature + log_mass
    # An overflow upstream, which must not pass for certainty.
    log_odds = torch.where(target_logit == torch.inf, torch.nan, log_odds)
    against, in_favour = softplus(log_odds), softplus(-log_odds)
    target_leads = target_logit >= others.top
    stats = RowStats(
        logps=-against,
        entropy=_entropy(others, log_mass, log_odds) if entropy else against.new_empty(0),
        shift=torch.where(target_leads, target_logit, others.top),
        lognorm=torch.where(target_leads, against, log_mass + in_favour),
    )
    return RowStats(*(part.to(target_logit.dtype) for part in stats))


def _entropy(others: Others, log_mass: Tensor, log_odds: Tensor) -> Tensor:
    p_target, p_others = torch.sigmoid(-log_odds), torch.sigmoid(log_odds)
    # 0 log 0 = 0: a side of probability 0 has an infinite or undefined log.
    from_target = torch.where(p_target > 0, p_target * softplus(log_odds), 0.0)
    spread = softplus(-log_odds) + log_mass + others.tilt / others.mass
    return from_target + torch.where(p_others > 0, p_others * spread, 0.0)


class Sums(NamedTuple):
    """Sums over the columns seen so far, the target's left out, and the target's logit. [N] each.

    `others` is fp64: next to the 1 of a leading column, fp32 would drop a tail of many small ones.
    """

    others: Others
    target_logit: Tensor

    @staticmethod
    def empty(like: Tensor, rows: int, dtype: torch.dtype) -> Sums:
        """No column seen; the target's logit is NaN until its tile comes."""
        others = Others(*like.new_zeros((3, rows), dtype=torch.float64))
        others.top.fill_(-torch.inf)
        return Sums(others, like.new_full((rows,), torch.nan, dtype=dtype))

    def rows(self, block: slice) -> Sums:
        """Views of a block of rows, to be updated in place."""
        return Sums(Others(*(part[block] for part in self.others)), self.target_logit[block])

    def close(self, temperature: float, entropy: bool) -> RowStats:
        """Log-probability, entropy and what the backward needs, when every column was seen."""
        return finish(self.others, self.target_logit, temperature, entropy)


def rows_of(stats: RowStats, block: slice | Tensor) -> RowStats:
    """Statistics of some rows; a part that was not asked for stays empty."""
    return RowStats(*(part[block] if len(part) else part for part in stats))


class TokenLogps(NamedTuple):
    """Log-probability of each target, and entropy of each distribution, in nats.

    Both have the shape of `targets` and are fp32 (fp64 for fp64 inputs). `entropy` has size 0
    when it was not asked for.
    """

    logps: Tensor
    entropy: Tensor
