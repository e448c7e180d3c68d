"""Combine the losses' metrics over micro-batches, ranks and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

ESS = "effective_sample_size"


class LossMetrics:
    """The losses' metrics over micro-batches: counts add up, means weigh by tokens or pairs.

    The entropy, which was not computed, is left out: logged as 0 it would read as measured.
    """

    def __init__(self) -> None:
        self._tokens = 0
        self._sums: dict[str, float] = {}
        self._pairs, self._preference = 0.0, {"loss": 0.0}

    def add(self, metrics: Mapping[str, Tensor], tokens: int) -> None:
        """Add those of a policy loss over so many scored tokens, on the host."""
        if tokens == 0:
            return
        self._tokens += tokens
        for name in metrics.keys() - {"tokens", "entropy"}:
            value, so_far = float(metrics[name]), self._sums.get(name, 0.0)
            if name == ESS:  # as the mean square of the ratio, whose mean is that of the batch
                value = float(metrics["ratio_mean"]) ** 2 / value
            if name == "ratio_max":
                self._sums[name] = max(so_far, value)
            else:
                self._sums[name] = so_far + value * (1 if name == "active_tokens" else tokens)

    def add_preference(self, metrics: Mapping[str, Tensor]) -> None:
        """Add the "loss" and the metrics of a preference, on the host."""
        pairs = float(metrics["pairs"])
        self._pairs += pairs
        self._preference["loss"] += float(metrics["loss"])
        for name in metrics.keys() - {"loss", "pairs"}:
            so_far = self._preference.get(name, 0.0)
            self._preference[name] = so_far + float(metrics[name]) * pairs

    @classmethod
    def of_all(cls, parts: Sequence[LossMetrics]) -> LossMetrics:
        """Combine the counts of all ranks into those of one process."""
        whole, *others = parts
        for other in others:
            whole._tokens += other._tokens
            whole._pairs += other._pairs
            for name, value in other._sums.items():
                so_far = whole._sums.get(name, 0.0)
                both = (so_far, value)
                whole._sums[name] = max(both) if name == "ratio_max" else sum(both)
            for name, value in other._preference.items():
                whole._preference[name] = whole._preference.get(name, 0.0) + value
        return whole

    def values(self) -> dict[str, float]:
        whole = ("ratio_max", "active_tokens")
        means = {k: v if k in whole else v / self._tokens for k, v in sorted(self._sums.items())}
        if means:
            means[ESS] = means["ratio_mean"] ** 2 / means[ESS]
        preference = {
            f"preference/{k}": v if k == "loss" else v / self._pairs
            for k, v in sorted(self._preference.items())
            if self._pairs
        }
        return {"scored_tokens": float(self._tokens), **means, **preference}


def mean_of_updates(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Combine the rows of several updates: sums of counts, the largest "ratio_max", means."""
    if len(rows) == 1:
        return dict(rows[0])
    combined = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        if name == "ratio_max":
            combined[name] = max(values)
        elif name in ("scored_tokens", "active_tokens"):
            combined[name] = sum(values)
        else:
            combined[name] = sum(values) / len(values)
    return combined
