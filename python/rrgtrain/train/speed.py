"""Measure a step's speed and how much of the device it used."""

from __future__ import annotations

import resource
from collections.abc import Mapping

import torch

from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks

# Dense bf16 FLOP/s of the tensor cores, from the vendors' data sheets. The first name that is
# part of the device's own counts.
PEAKS = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "H200": 9.89e14,
    "H100 PCIe": 7.56e14,
    "H100 NVL": 8.35e14,
    "H100": 9.89e14,
    "A100": 3.12e14,
    "L40S": 3.62e14,
    "L40": 1.81e14,
    "L4": 1.21e14,
    "A10": 1.25e14,
    "RTX 4090": 1.65e14,
    "RTX 3090": 7.1e13,
}


def peak_flops(policy: Policy) -> float | None:
    """Return the FLOP/s of the policy's device in its dtype.

    None where that is not known."""
    if policy.device.type != "cuda" or policy.dtype not in (torch.bfloat16, torch.float16):
        return None
    name = torch.cuda.get_device_name(policy.device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def update_flops(policy: Policy, tokens: int, scored: int, *, reference: bool) -> float:
    """FLOPs of an update on `tokens` tokens of which the head sees `scored`.

    2 per parameter and token forward; backward 2 more for the activations, and 2 for the weights
    that train (all or none of a part: adapters are not counted). The vision tower and the
    products inside attention are left out, so a utilisation from this is a lower bound.
    """
    body = policy.language_model.layers
    head = policy.backbone.get_output_embeddings().weight
    flops = tokens * sum(p.numel() for p in body.parameters()) * _per_parameter(body)
    flops += scored * head.numel() * (6.0 if head.requires_grad else 4.0)
    if reference:
        flops += 2.0 * (tokens * sum(p.numel() for p in body.parameters()) + scored * head.numel())
    return flops


def _per_parameter(body: torch.nn.Module) -> float:
    sizes: dict[bool, int] = {True: 0, False: 0}
    for parameter in body.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    return 4.0 + 2.0 * sizes[True] / max(1, sum(sizes.values()))


class Speed:
    """The rows "seconds/...", "speed/..." and "memory/peak_mib" of each step's log."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.peak = peak_flops(policy)

    def begin(self) -> None:
        """A step begins; its peak of memory is counted from here (on a GPU)."""
        if self.policy.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.policy.device)

    def row(
        self,
        seconds: Mapping[str, float],
        *,
        generated: int,
        trained: int,
        scored: int,
        reference: bool,
    ) -> dict[str, float]:
        """seconds: of this step's phases, "rollout" and "update" among them. generated: tokens
        sampled; trained: tokens through the update's forward, prompts included; scored: those
        whose log-probability was asked for. Of several ranks: tokens of all, seconds of rank 0, the
        largest peak of memory."""
        row = {f"seconds/{name}": value for name, value in seconds.items()}
        row["speed/generated_tokens"] = generated / seconds["rollout"]
        row["speed/trained_tokens"] = trained / seconds["update"]
        if self.peak is not None:
            flops = update_flops(self.policy, trained, scored, reference=reference)
            row["speed/flop_utilisation"] = flops / seconds["update"] / self.peak / ranks.size()
        row["memory/peak_mib"] = max(ranks.gather(peak_memory(self.policy.device))) / 2**20
        return row

    def note(self) -> str | None:
        """A sentence for the report where the utilisation of a GPU cannot be told."""
        if self.peak is not None or self.policy.device.type != "cuda":
            return None
        name = f"{torch.cuda.get_device_name(self.policy.device)} in {self.policy.dtype}"
        return f"Model FLOP utilisation: unknown, no peak is on record for {name}."


def peak_memory(device: torch.device) -> int:
    """Bytes: allocated on the GPU since `Speed.begin`, or of the whole process since its start."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
