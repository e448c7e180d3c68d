"""Time the phases of a step, and write its row: batch, rewards, losses and speed."""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from typing import SupportsFloat

import torch

from rrgclinical.common.stopwatch import Stopwatch
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgtrain.algorithms.group import members
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService
from rrgtrain.train.batch import Batch
from rrgtrain.train.resample import differing


def peak_memory(device: torch.device) -> int:
    """Count bytes: of the GPU since `StepLog.begin`, or of the process since its start."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


PHASES = ("rollout", "edit", "reward", "update", "validate")


class StepLog:
    """Watch the steps of a training, one after another.

    `clock` sums the seconds of each phase over resumes; `shown` is what a bar says of the step
    whose row was written last.
    """

    def __init__(self, name: str, log: RunLog, policy: Policy, rewards: RewardService) -> None:
        self._name, self._log, self._rewards = name, log, rewards
        self._device = policy.device
        self.clock = Stopwatch(PHASES)
        self.shown: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._before = rewards.statistics()

    def begin(self) -> None:
        """Begin a step: its seconds, costs and peak of memory count from here."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._seconds, self._before = {}, self._rewards.statistics()

    def lap(self, phase: str) -> None:
        """Count the time since the last lap to a phase of this step."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + self.clock.lap(phase)

    def write(self, step: int, batch: Batch, update: Mapping[str, float], tokens: int) -> None:
        """Write the row of a step; `tokens` went through the update's forward, prompts included.

        Of several ranks: tokens of all, seconds of rank 0, the largest peak of memory.
        """
        total = batch.scores["total"]
        self.shown = {"reward": float(total.mean())} if len(total) else {}
        generated = sum(len(m.ids) for m in members(batch.sampled))
        speed = {
            **{f"seconds/{name}": value for name, value in self._seconds.items()},
            "speed/generated_tokens": generated / self._seconds["rollout"],
            "speed/trained_tokens": tokens / self._seconds["update"],
            "memory/peak_mib": max(ranks.gather(peak_memory(self._device))) / 2**20,
        }
        rewards = self._rewards.since(self._before)
        if cost := rewards.get("endpoint/total_cost"):
            self.shown["cost"] = cost
        self._log.write(
            self._name, step, {**batch_row(batch), **batch.counts, **update, **speed, **rewards}
        )


def batch_row(batch: Batch) -> dict[str, float]:
    """Compute the row that a step logs of its groups and rewards."""
    # in nats a token; left out where the engine reports no log-probabilities
    logps = [m.sampler_logps for m in members(batch.sampled) if m.sampler_logps is not None]
    row = {
        **reward_rows(batch),
        "zero_variance": zero_variance(batch) / len(batch.sampled),
        **({"entropy": -float(torch.cat(logps).mean())} if logps else {}),
    }
    # what an algorithm adds always has an end, and would hide how many are cut
    if drawn := [m for m in members(batch.groups) if m.origin == "sampled"]:
        row["unfinished"] = sum(not m.finished for m in drawn) / len(drawn)
        row["report_tokens"] = sum(len(m.ids) for m in drawn) / len(drawn)
    return row


def zero_variance(batch: Batch) -> int:
    """Count the drawn groups whose scored members all earn the same reward."""
    if "resample/equal" in batch.counts:  # they may be gone from the batch
        return int(batch.counts["resample/equal"])
    return len(batch.groups) - len(differing(batch))


def reward_rows(batch: Batch) -> dict[str, float]:
    """Compute the logged rows of rewards.

    Means of every reward and of the total by origin, the share of sampled reports that earn nothing
    at all and that of groups without any that earns something (OraPO, figure 2). None where no
    member is scored."""
    groups, scores = batch.groups, batch.scores
    origins = [member.origin for member in members(groups) if member.scored]
    if not origins:
        return {}
    rows = {f"reward/{name}": float(value.mean()) for name, value in scores.items()}
    edited = [member.scored for member in members(groups) if member.parent is not None]
    if not all(edited):
        rows["edits_left_out"] = float(edited.count(False))
    for origin in sorted(set(origins)):
        chosen = [v for v, o in zip(scores["total"], origins, strict=True) if o == origin]
        rows[f"reward_{origin}"] = float(sum(chosen) / len(chosen))
    drawn = [v for v, o in zip(scores["total"], origins, strict=True) if o == "sampled"]
    if drawn:
        rows["zero_reward"] = sum(v == 0 for v in drawn) / len(drawn)
        values, shares = iter(scores["total"]), []  # of groups that have any
        for group in groups:
            own = [(m.origin, next(values)) for m in group.members if m.scored]
            if sampled := [v for origin, v in own if origin == "sampled"]:
                shares.append(all(v == 0 for v in sampled))
        rows["zero_groups"] = sum(shares) / len(shares)
    return rows


ESS = "effective_sample_size"


class LossMetrics:
    """The losses' metrics over micro-batches: counts add up, means weigh by tokens or pairs.

    The entropy, which was not computed, is left out: logged as 0 it would read as measured.
    """

    def __init__(self) -> None:
        self._tokens = 0
        self._sums: dict[str, float] = {}
        self._pairs, self._preference = 0.0, {"loss": 0.0}

    def add(self, metrics: Mapping[str, SupportsFloat], tokens: int) -> None:
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

    def add_preference(self, metrics: Mapping[str, SupportsFloat]) -> None:
        """Add the "loss" and the metrics of a preference, on the host."""
        pairs = float(metrics["pairs"])
        self._pairs += pairs
        self._preference["loss"] += float(metrics["loss"])
        for name in metrics.keys() - {"loss", "pairs"}:
            so_far = self._preference.get(name, 0.0)
            self._preference[name] = so_far + float(metrics[name]) * pairs

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
