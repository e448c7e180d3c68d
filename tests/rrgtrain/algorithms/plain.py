"""The four papers' objectives written out: one report at a time, fp64, nothing fused or packed.

Everything here comes from the equations and shares no line with the trainer: the forward is
transformers' own on prompt and report, log-probabilities come from whole rows of logits, means
and spreads from `statistics`, token weights from Python counters.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Group, Member
from tests.rrgpolicy.model.equality import own_logits


def logps(policy: Policy, group: Group, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """[T] log π(o_t | prompt, o_<t)."""
    return distributions(policy, group, ids, temperature)[torch.arange(len(ids)), ids]


def distributions(policy: Policy, group: Group, ids: Tensor, temperature: float) -> Tensor:
    """[T, V], the logarithms of the whole distributions."""
    return (own_logits(policy.model, group.prompt, ids) / temperature).log_softmax(-1)


class Reports:
    """Log-probabilities of every member under policy and reference, each computed once."""

    def __init__(
        self,
        policy: Policy,
        reference: Policy,
        groups: Sequence[Group],
        rollout: Policy | None = None,
        temperature: float = 1.0,
    ) -> None:
        """rollout: the policy that sampled, where that is another than `policy` by now."""
        self.policy: dict[int, Tensor] = {}
        self.reference: dict[int, Tensor] = {}
        self.rollout: dict[int, Tensor] = {}
        for group in groups:
            for member in group.members:
                self.policy[id(member)] = logps(policy, group, member.ids, temperature)
                with torch.no_grad():
                    self.reference[id(member)] = logps(reference, group, member.ids, temperature)
                    if rollout is not None:
                        self.rollout[id(member)] = logps(rollout, group, member.ids)

    def surrogate(self, member: Member, advantages: list[float], eps: float = 0.2) -> Tensor:
        """[T] -min(r·A, clip(r, 1 ± ε)·A), r = π / π_rollout, of edited reports too."""
        own, a = self.policy[id(member)], torch.tensor(advantages, dtype=torch.float64)
        ratio = (own - self.rollout.get(id(member), own.detach())).exp()
        return -torch.minimum(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a)

    def k3(self, member: Member) -> Tensor:
        """[T] π_ref/π - log(π_ref/π) - 1."""
        d = self.reference[id(member)] - self.policy[id(member)]
        return d.exp() - d - 1

    def gain(self, member: Member) -> Tensor:
        """Δ / |o|: the mean of log π - log π_ref over the tokens."""
        return (self.policy[id(member)] - self.reference[id(member)]).mean()


def centred(rewards: Sequence[float], spread: str) -> list[float]:
    """r - mean, over the spread: MRG-R1 eq. 2 (population, ε in the root), TRL (sample), none."""
    mean = statistics.fmean(rewards)
    scale = {
        "none": lambda: 1.0,
        "population": lambda: math.sqrt(statistics.pvariance(rewards) + 1e-6),
        "sample": lambda: statistics.stdev(rewards) + 1e-4,
    }[spread]()
    return [0.0 if len(set(rewards)) == 1 else (r - mean) / scale for r in rewards]


def tfidf(bodies: Sequence[list[int]], alpha: float) -> list[list[float]]:
    """DEER eqs. 7 and 8 over the reports of one group."""
    weights = []
    for ids in bodies:
        count = Counter(ids)
        frequency = {t: sum(t in other for other in bodies) for t in count}
        weights.append(
            [1 + alpha * count[t] / len(ids) * math.log(len(bodies) / frequency[t]) for t in ids]
        )
    return weights


def mixing_weight(rate: float) -> float:
    """OraPO eq. 10 with its printed bounds 0.05 and 0.15 and exponent 2."""
    return min(max(0.05 + 0.10 * rate**2, 0.05), 0.15)


def ln_dpo(reports: Reports, oracle: Member, others: Sequence[Member], tau: float) -> Tensor:
    """OraPO eqs. 5 to 7 and 12, per token: the mean over k of -log σ(τ (gain_oracle - gain_k))."""
    best = reports.gain(oracle)
    losses = [-torch.log(torch.sigmoid(tau * (best - reports.gain(o)))) for o in others]
    return torch.stack(losses).mean()
