"""The policy loss once more, in plain Python numbers, one token at a time.

Written from the formulas alone. What a formula detaches is computed from `held`, a copy of the
log-probabilities that a finite difference leaves where it is.
"""

from __future__ import annotations

import math
from itertools import pairwise

from rrgkern import PolicyLoss
from tests.rrgkern.policy_loss.cases import Batch


def clamp(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def loop_loss(
    spec: PolicyLoss, batch: Batch, moving: list[float] | None = None
) -> tuple[float, dict[str, float]]:
    """Loss and metrics; `moving` replaces the log-probabilities wherever they are not detached."""
    held = batch.logps.tolist()
    moving = held if moving is None else moving
    keep = batch.keep.tolist()
    starts = batch.offsets.tolist()
    loss = 0.0
    seen: list[dict[str, float]] = []
    for i, (start, end) in enumerate(pairwise(starts)):
        tokens = [t for t in range(start, end) if keep[t]]
        for token in sequence_terms(spec, batch, i, tokens, moving, held):
            loss += token.pop("scaled")
            seen.append(token)
    return loss, summary(seen)


def sequence_terms(
    spec: PolicyLoss,
    batch: Batch,
    i: int,
    tokens: list[int],
    moving: list[float],
    held: list[float],
) -> list[dict[str, float]]:
    """The contributions of one sequence."""
    flagged = batch.on_policy is not None and bool(batch.on_policy[i])
    length = len(tokens)

    def behaviour(t: int) -> float:
        return held[t] if batch.old is None or flagged else float(batch.old[t])

    def log_c(t: int) -> float:
        if batch.sampler is None or flagged or math.isnan(float(batch.sampler[t])):
            return 0.0
        return behaviour(t) - float(batch.sampler[t])

    def bounded(c: float) -> float:
        if batch.sampler is None or flagged:
            return 1.0
        low, high = spec.sampler_min or 0.0, spec.sampler_max or math.inf
        if spec.sampler_mode == "truncate":
            return clamp(c, low, high)
        return c if low <= c <= high else 0.0

    def advantage_of(t: int) -> float:
        advantage = float(batch.advantages[t if len(batch.advantages) == len(held) else i])
        return advantage * (1.0 if batch.token_weight is None else float(batch.token_weight[t]))

    def log_ratio(t: int, values: list[float]) -> float:
        log, sign = values[t] - behaviour(t), advantage_of(t)
        if spec.surrogate != "gmpo" or sign == 0:
            return log
        return min(log, spec.eps_high) if sign > 0 else max(log, -spec.eps_low)

    def mean_ratio(values: list[float]) -> float:
        mean = sum(log_ratio(t, values) for t in tokens) / max(length, 1)
        return math.exp(clamp(mean, -20, 20))

    means = {id(values): mean_ratio(values) for values in (moving, held)}

    def ratio(t: int, values: list[float]) -> float:
        if spec.ratio_level == "token" or flagged:
            return math.exp(clamp(values[t] - behaviour(t), -20, 20))
        if spec.ratio_level == "sequence":
            return means[id(values)]
        return means[id(held)] * math.exp(values[t] - held[t])

    log_whole = sum(map(log_c, tokens))
    if spec.sampler_level == "geometric":
        log_whole /= max(length, 1)
    whole_correction = bounded(math.exp(clamp(log_whole, -20, 20)))
    log_w = 0.0
    for t in tokens:
        rho = bounded(math.exp(log_c(t)))
        log_w += clamp(held[t] - behaviour(t), -20, 20)
        log_w += clamp(math.log(rho) if rho else -math.inf, math.log(1e-8), 20)
    w = math.exp(clamp(log_w, math.log(1e-8), 20))

    result = []
    for t in tokens:
        advantage = advantage_of(t)
        scale = float(batch.scale[t if len(batch.scale) == len(held) else i])

        r, r_held = ratio(t, moving), ratio(t, held)
        low = -math.inf if spec.eps_low is None else 1 - spec.eps_low
        high = 1 + spec.eps_high
        below = above = False
        if spec.surrogate in ("clip", "luspo"):
            used = min(r, spec.dual_clip) if spec.dual_clip and advantage < 0 else r
            value = -min(used * advantage, clamp(r, low, high) * advantage)
            below = advantage < 0 and r < low
            above = advantage > 0 and r > high
            above = above or bool(advantage < 0 and spec.dual_clip and r > spec.dual_clip)
        elif spec.surrogate == "gmpo":
            value = -r * advantage
            clipped = log_ratio(t, held) - (held[t] - behaviour(t))
            below, above = clipped > 0, clipped < 0
        elif spec.surrogate == "cispo":
            value = -clamp(r_held, low, high) * advantage * moving[t]
            below, above = advantage != 0 and r < low, advantage != 0 and r > high
        elif spec.surrogate == "sapo":
            tau = spec.sapo_tau_pos if advantage > 0 else spec.sapo_tau_neg
            value = -advantage * 4 / tau / (1 + math.exp(-tau * (r - 1)))
        elif spec.surrogate == "reinforce":
            value = -advantage * moving[t]
        else:
            k = spec.vespo_k_pos if advantage >= 0 else spec.vespo_k_neg
            lam = spec.vespo_lambda_pos if advantage >= 0 else spec.vespo_lambda_neg
            value = -(math.exp(lam) * w**k * math.exp(-lam * w)) * advantage * moving[t]

        rho = bounded(math.exp(log_c(t))) if spec.sampler_level == "token" else whole_correction
        if spec.surrogate == "vespo":
            rho = 1.0
        kl = 0.0
        if batch.ref is not None:
            x = clamp(float(batch.ref[t]) - moving[t], -20, 20)
            kl = {"k1": -x, "k2": x * x / 2, "k3": math.exp(x) - x - 1}[spec.kl]
        entropy = 0.0 if batch.entropy is None else float(batch.entropy[t])
        weighted_kl = kl * r if spec.kl_ratio_weight else kl
        total = rho * value + spec.beta * weighted_kl - spec.entropy_coef * entropy
        result.append(
            {
                "scaled": scale * total,
                "kl": kl,
                "clip_low": float(below),
                "clip_high": float(above),
                "ratio": r,
                "entropy": entropy,
            }
        )
    return result


def summary(seen: list[dict[str, float]]) -> dict[str, float]:
    """The metrics that a list of tokens determines."""
    n = max(len(seen), 1)

    def mean(name: str) -> float:
        return sum(token[name] for token in seen) / n

    ratios = [token["ratio"] for token in seen]
    squares = sum(r * r for r in ratios)
    return {
        **{name: mean(name) for name in ("kl", "clip_low", "clip_high", "entropy")},
        "ratio_mean": sum(ratios) / n,
        "ratio_max": max(ratios, default=0.0),
        "effective_sample_size": sum(ratios) ** 2 / (n * squares) if seen else 0.0,
        "tokens": float(len(seen)),
    }
