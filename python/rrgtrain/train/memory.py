"""The bytes that a rank holds of a policy in training, activations apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from rrgtrain.policy.policy import Policy

# bitsandbytes keeps smaller tensors in 32 bits, and one fp32 scale for each block of the others
SMALLEST_8BIT, BLOCK_8BIT = 4096, 256


@dataclass(frozen=True)
class StateBytes:
    """Hold the bytes of one rank's state.

    `gathered` is the copy of the whole model in `policy.dtype` that rollouts and pushes to vLLM
    read; gradients are freed before there is one."""

    weights: int
    gradients: int
    moments: int
    gathered: int

    @property
    def update(self) -> int:
        """Before the optimiser steps."""
        return self.weights + self.gradients + self.moments

    @property
    def rollout(self) -> int:
        """While reports are sampled."""
        return self.weights + self.moments + self.gathered


def state_bytes(policy: Policy, *, ranks: int = 1, optimizer: str = "adamw") -> StateBytes:
    """Predicts what each of `ranks` holds of a policy loaded with `masters`, placed or not.

    A weight is cut along its first axis into equal parts, the last ones padded. Of n elements, what
    trains takes 4n bytes of weights, 4n of gradients and 8n of moments (2n in 8 bits), and 2n of a
    gathered copy in bf16; what never trains takes its own bytes. In a process alone there is no
    second copy of what is in `policy.dtype` already.

    optimizer: `rl.optimizer`. The reference of KL, activations and vLLM come on top.
    """
    weights = gradients = moments = gathered = 0
    for parameter in policy.model.parameters():
        part = _part(parameter, ranks)
        weights += part * parameter.element_size()
        if ranks > 1 or parameter.dtype != policy.dtype:
            gathered += parameter.numel() * policy.dtype.itemsize
        if parameter.requires_grad:
            gradients += part * parameter.element_size()
            moments += 2 * _moment(part, parameter.element_size(), optimizer)
    return StateBytes(weights, gradients, moments, gathered)


def _part(parameter: nn.Parameter, ranks: int) -> int:
    """Elements of a rank's part."""
    rows = parameter.shape[0] if parameter.ndim else 1
    return -(-rows // ranks) * (parameter.numel() // max(1, rows))


def _moment(elements: int, size: int, optimizer: str) -> int:
    if optimizer == "adamw_8bit" and elements >= SMALLEST_8BIT:
        return elements + torch.float32.itemsize * -(-elements // BLOCK_8BIT)
    return elements * size
