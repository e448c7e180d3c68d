"""Weigh token losses so that their sum is the loss, and choose among them."""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor

from rrgkern.checks import (
    check_device,
    check_rising,
    check_tensors,
    functorch_level,
    is_sharded,
    values_may_be_read,
)
from rrgkern.padded import Tokens, as_flags, rows_to_keep
from rrgkern.policy_loss.inputs import PolicyInputs, check_inputs, check_types
from rrgkern.policy_loss.terms import terms
from rrgkern.segments import sequence_of_token, sum_per_sequence

AGGREGATIONS = ("grpo", "bnpo", "dapo", "dr_grpo", "sum")


def loss_scale(
    aggregation: str,
    offsets: Tensor | None = None,
    *,
    max_length: int | None = None,
    total_tokens: int | Tensor | None = None,
    world_size: int = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """Weight of each token's loss: loss = sum over tokens of scale * token loss.

    | aggregation | scale of a token of sequence i |
    | "grpo"      | 1 / (S |o_i|), the mean over sequences of their mean |
    | "bnpo"      | 1 / N, the mean over the tokens of this batch |
    | "dapo"      | world_size / total_tokens, the mean over all tokens of the optimiser step |
    | "dr_grpo"   | 1 / (S max_length), unbiased in the length (Dr. GRPO) |
    | "sum"       | 1 / S, the mean over sequences of their sum (LUSPO's weighting) |

    A loss over part of a batch takes the scale of the whole batch at its sequences, so that
    micro-batches add up to the loss of the batch. An empty sequence counts in S; its own scale is
    0, and so is every scale of a batch without tokens. Nothing waits for the device.

    Args:
        aggregation: one of AGGREGATIONS.
        offsets: [S+1] int64, where sequences begin; N = offsets[-1] tokens. None for a padded
            batch, whose `mask` is [B, T]; S is B then.
        max_length: completion limit in tokens, "dr_grpo" only.
        total_tokens: scored tokens of all batches of the optimiser step on all ranks, a whole
            number, or a tensor of one number, a fraction where ranks take their mean; "dapo" only.
        world_size: number of ranks where ranks average their gradients; "dapo" only.
        mask: [N] or [B, T], bool or integers; |o_i| and N then count only the tokens where it is
            True, or not 0.

    Returns:
        [S] fp32 on the device of `offsets`.

    Raises:
        TypeError: offsets is not int64, mask neither bool nor integers, or a count no number.
        ValueError: an unknown aggregation, a missing or needless option, a wrong shape, a count
            that is not whole or below 1; on CPU, or with RRGKERN_CHECK=1, also offsets that go
            down and a tensor of `total_tokens` that is negative or not finite.
    """
    check_tensors(optional={"offsets": offsets, "mask": mask})
    mask = None if mask is None else as_flags("mask", mask)
    if aggregation not in AGGREGATIONS:
        raise ValueError(
            f"aggregation is {aggregation!r}; choose one of {', '.join(map(repr, AGGREGATIONS))}"
        )
    if offsets is None:
        if mask is None or mask.ndim != 2:
            raise ValueError(
                f"offsets is None and mask {None if mask is None else tuple(mask.shape)}: pass "
                "offsets [S+1], or the mask [B, T] of a padded batch"
            )
        offsets = Tokens("mask", mask.shape).offsets(None, mask.device)
        mask = mask.reshape(-1)
    if offsets.dtype != torch.int64:
        raise TypeError(f"offsets is {offsets.dtype}; wanted torch.int64")
    check_device("mask", mask, "offsets", offsets)
    check_rising("offsets", offsets)
    _only_for("dr_grpo", aggregation, "max_length", max_length)
    _only_for("dapo", aggregation, "total_tokens", total_tokens)
    _whole("world_size", world_size)
    if world_size > 1 and aggregation != "dapo":
        raise ValueError(
            f"world_size is {world_size} with aggregation {aggregation!r}; it must be 1 unless "
            "the aggregation is 'dapo'"
        )

    n_sequences = offsets.numel() - 1
    lengths = _lengths(offsets, mask)
    if aggregation == "grpo":
        tokens = lengths * n_sequences
    elif aggregation == "bnpo":
        tokens = lengths.sum().expand(n_sequences)
    elif aggregation == "dapo":
        assert total_tokens is not None
        total = torch.as_tensor(total_tokens, dtype=torch.float64, device=offsets.device)
        tokens = (total / world_size).expand(n_sequences)
    elif aggregation == "dr_grpo":
        assert max_length is not None
        tokens = lengths.new_full((n_sequences,), float(n_sequences) * max_length)
    else:
        tokens = lengths.new_full((n_sequences,), float(n_sequences))
    return torch.where((lengths > 0) & (tokens > 0), 1.0 / tokens, 0.0).float()


def top_entropy_weight(entropy: Tensor, share: float, mask: Tensor | None = None) -> Tensor:
    """Weigh the scored tokens of most entropy by 1, others by 0 (2506.01939).

    A `token_weight` of a policy loss, or a factor of it: KL and lengths still count all tokens.
    `entropy` [N] or [B, T] are those of a whole update, of all ranks; equal ones at the bound all
    count. Returns its shape and dtype, without gradient. ValueError for a share not in (0, 1].
    """
    check_tensors(entropy=entropy, optional={"mask": mask})
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; wanted a number above 0 and at most 1")
    flat = entropy.detach().reshape(-1).double()
    keep = rows_to_keep(mask, Tokens("entropy", entropy.shape), entropy.device)
    keep = flat == flat if keep is None else keep
    ranked = flat[keep].sort().values  # torch.quantile takes 16 million at most
    if len(ranked):
        place = round((1 - share) * (len(ranked) - 1), 9)  # 0.3 of ten steps are three
        low, high = ranked[math.floor(place)], ranked[math.ceil(place)]
        keep = keep & (flat >= low.lerp(high, place % 1))
    return keep.to(entropy.dtype).view(entropy.shape)


def off_policy_weight(
    logps: Tensor,
    old: Tensor,
    advantages: Tensor,
    offsets: Tensor | None = None,
    *,
    threshold: float,
    mask: Tensor | None = None,
) -> Tensor:
    """Weigh losing tokens by 0 where the policy has left their sequence, else by 1.

    It has where old - logps is above `threshold` nats on average (DeepSeek-V3.2, 2512.02556). `old`
    is the rollout engine's where it has its own, and NaN, no difference, where it has none; other
    arguments and errors are those of `policy_loss`, and the use is that of `top_entropy_weight`.
    """
    policy = PolicyInputs(advantages, offsets, advantages, old=old, mask=mask)  # type: ignore[arg-type]
    check_types(policy, logps=logps)
    tokens = Tokens("logps", logps.shape)
    policy = policy.packed(tokens, logps.device)
    check_inputs(policy, policy.variant, "logps", logps, tokens.total)
    t = terms(logps.detach().reshape(-1).double(), None, policy.prepared(torch.float64))
    gaps = sum_per_sequence(-t.token_log_ratio.nan_to_num(nan=0.0), t.sequence, t.length.numel())
    is_left = (gaps / t.length.clamp(min=1) > threshold)[t.sequence] & (t.advantage < 0)
    return (~is_left).to(logps.dtype).view(logps.shape)


def _lengths(offsets: Tensor, mask: Tensor | None) -> Tensor:
    """[S] fp64, the scored tokens of each sequence."""
    if mask is None:
        return offsets.diff().double()
    if mask.ndim != 1:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; wanted [N] with offsets, [B, T] without"
        )
    sequence = sequence_of_token(offsets, mask.numel())
    return sum_per_sequence(mask.double(), sequence, offsets.numel() - 1)


def _only_for(owner: str, aggregation: str, name: str, value: object) -> None:
    if aggregation == owner and value is None:
        raise ValueError(f"aggregation {owner!r} needs {name}; pass it")
    if aggregation != owner and value is not None:
        raise ValueError(
            f"{name} is given with aggregation {aggregation!r}; only {owner!r} uses it"
        )
    if value is not None:
        _whole(name, value)


def _whole(name: str, value: object) -> None:
    """Raise for what is no count of 1 or more; a tensor's value only where it may be read."""
    if torch.compiler.is_compiling():
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name} is {value}; wanted a whole number of at least 1")
        return
    if is_sharded(value):
        raise TypeError(f"{name} is a DTensor; wanted one number: pass {name}.full_tensor()")
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.dtype == torch.bool:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)} and {value.dtype}; wanted one number"
            )
        if not values_may_be_read(value) or functorch_level() is not None:
            return
        # a sum over ranks may be 0, no token and every scale 0; a mean over them, a fraction
        if not 0 <= float(value) < math.inf:
            raise ValueError(f"{name} is {float(value)}; wanted a number of 0 or more")
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; wanted a whole number")
    number = value if isinstance(value, int) else float(value)
    if not (1 <= number < math.inf and number == math.floor(number)):
        raise ValueError(f"{name} is {value}; wanted a whole number of at least 1")
