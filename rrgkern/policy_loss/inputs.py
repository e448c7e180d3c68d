"""Hold and check the argument list of every policy loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import (
    check_begins,
    check_constants,
    check_device,
    check_offsets,
    check_tensors,
    values_may_be_read,
)
from rrgkern.padded import Tokens, as_flags
from rrgkern.policy_loss.spec import PolicyLoss


class PolicyInputs(NamedTuple):
    """All that a policy loss needs beside log-probabilities, logits or hidden states.

    Shapes and meaning as in `policy_loss`. What `prepared` returns goes through the ops: numbers
    in one dtype, everything contiguous, and the two flags set.
    """

    advantages: Tensor
    offsets: Tensor  # None until `packed` where a padded batch is passed
    scale: Tensor
    old: Tensor | None = None
    ref: Tensor | None = None
    sampler: Tensor | None = None
    token_weight: Tensor | None = None
    on_policy: Tensor | None = None
    mask: Tensor | None = None
    advantage_per_token: bool = False  # advantages are [N], not [S]
    scale_per_token: bool = False  # scale is [N], not [S]
    spec: str = PolicyLoss().encode()

    @property
    def variant(self) -> PolicyLoss:
        """The variant that `spec` encodes."""
        return PolicyLoss.decode(self.spec)

    @property
    def of_tokens(self) -> dict[str, Tensor | None]:
        """The numbers of each token, by name."""
        first = {"old": self.old, "ref": self.ref}
        return {**first, "sampler": self.sampler, "token_weight": self.token_weight}

    @property
    def numbers(self) -> tuple[Tensor | None, ...]:
        """Advantages to token weight: what kernels take before an entropy."""
        return self.advantages, self.offsets, self.scale, *self.of_tokens.values()

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors, in the order of a kernel's argument list."""
        return (*self.numbers, self.on_policy, self.mask)

    @property
    def ties_tokens(self) -> bool:
        """True where a token's gradient depends on the other tokens of its sequence."""
        return self.variant.ties_tokens(self.sampler is not None)

    def packed(self, tokens: Tokens, device: torch.device) -> PolicyInputs:
        """Lay a padded batch out as [N] tokens of B sequences, flags in bool.

        Without offsets the batch is padded. With them [B, T] are N tokens, divided by the offsets,
        and advantages and scale are per token in [B, T], unless that is [S, 1].

        Raises:
            TypeError: flags that are neither bool nor integers.
            ValueError: a shape that does not fit.
        """
        mask = None if self.mask is None else as_flags("mask", self.mask)
        on_policy = None if self.on_policy is None else as_flags("on_policy", self.on_policy)
        if self.offsets is not None and len(tokens.shape) == 1:
            return self._replace(mask=mask, on_policy=on_policy)
        offsets = tokens.offsets(self.offsets, device)
        of_sequences: dict[str, Any] = {"advantages": self.advantages, "scale": self.scale}
        if self.offsets is None:
            of_sequences = {n: tokens.of_sequences(n, x) for n, x in of_sequences.items()}
            if on_policy is not None and on_policy.shape == (tokens.shape[0], 1):
                on_policy = on_policy[:, 0]
        elif tokens.shape != (offsets.numel() - 1, 1):
            of_sequences = {
                n: x.reshape(1, -1) if x.shape == tokens.shape else x
                for n, x in of_sequences.items()
            }
        of_tokens = {**self.of_tokens, "mask": mask}
        flat: dict[str, Any] = {
            n: None if x is None else tokens.flat(n, x) for n, x in of_tokens.items()
        }
        return self._replace(offsets=offsets, on_policy=on_policy, **of_sequences, **flat)

    def prepared(self, dtype: torch.dtype) -> PolicyInputs:
        """The arguments as the ops take them: numbers in `dtype`, without gradient."""

        def constant(values: Tensor) -> Tensor:
            if values.dtype == dtype and not values.requires_grad:
                return values.contiguous()
            return values.detach().to(dtype).contiguous()

        def flat(values: Tensor) -> Tensor:
            return values if values.ndim == 1 else values.reshape(-1)

        sequences = self.offsets.numel() - 1
        of_tokens = {n: None if x is None else constant(x) for n, x in self.of_tokens.items()}
        return PolicyInputs(
            **of_tokens,
            advantages=constant(flat(self.advantages)),
            offsets=self.offsets.contiguous(),
            scale=constant(flat(self.scale)),
            on_policy=None if self.on_policy is None else self.on_policy.contiguous(),
            mask=None if self.mask is None else self.mask.contiguous(),
            advantage_per_token=_is_per_token(self.advantages, sequences),
            scale_per_token=_is_per_token(self.scale, sequences),
            spec=self.spec,
        )


class LogpsInputs(NamedTuple):
    """The arguments of `rrgkern::policy_loss_fwd`."""

    logps: Tensor
    entropy: Tensor | None
    policy: PolicyInputs


class LogitsInputs(NamedTuple):
    """Arguments of `policy_loss_from_logits_fwd_`: logits [N, V] or [B, L, V], targets [N]."""

    logits: Tensor
    targets: Tensor
    policy: PolicyInputs
    temperature: float
    entropy: bool


class LogitsInputsAnew(NamedTuple):
    """Arguments of `policy_loss_from_logits_fwd`."""

    logits: LogitsInputs
    with_gradient: bool


def check_types(
    policy: PolicyInputs, *, optional: dict[str, Tensor | None] | None = None, **required: Tensor
) -> None:
    """Raise TypeError unless the door's `required` and `optional` and the policy's are tensors.

    Raises:
        NotImplementedError: a tensor of the policy requires a gradient.
    """
    flags = {"offsets": policy.offsets, "on_policy": policy.on_policy, "mask": policy.mask}
    check_tensors(
        **required,
        advantages=policy.advantages,
        scale=policy.scale,
        optional={**(optional or {}), **policy.of_tokens, **flags},
        gathered=("weight", "bias"),
    )
    check_constants(advantages=policy.advantages, scale=policy.scale, **policy.of_tokens)


def check_inputs(
    policy: PolicyInputs,
    spec: PolicyLoss,
    anchor: str,
    rows: Tensor,
    count: int,
    entropy: Tensor | None = None,
) -> None:
    """Raise one line naming what was seen and wanted.

    Args:
        policy: the arguments as the caller passed them.
        spec: their variant; torch.compile cannot trace how `policy` decodes it.
        anchor, rows: the argument that stands for the tokens, and its name; the device is its.
        count: N.
        entropy: [N], checked like the policy's own.
    """
    offsets = policy.offsets
    check_begins("offsets", offsets, "S+1", anchor, rows, count)
    sequences = offsets.numel() - 1
    for name, values in {"advantages": policy.advantages, "scale": policy.scale}.items():
        if values.shape not in ((sequences, 1), (1, count)):
            _check_length(name, values, anchor, rows, {"[S]": sequences, "[N]": count})
        _check_number(name, values, anchor, rows)
    for name, given in {**policy.of_tokens, "entropy": entropy}.items():
        if given is not None:
            _check_length(name, given, anchor, rows, {"[N]": count})
            _check_number(name, given, anchor, rows)
    flags = {
        "on_policy": (policy.on_policy, "[S], one per sequence", sequences),
        "mask": (policy.mask, "[N], one per token", count),
    }
    for name, (flag, wanted, length) in flags.items():
        if flag is not None:
            _check_length(name, flag, anchor, rows, {wanted: length})
            check_device(name, flag, anchor, rows)
    if spec.beta and policy.ref is None:
        raise ValueError(f"beta is {spec.beta} and ref is None; pass ref [N] or set beta to 0")
    check_offsets("offsets", offsets, count, "tokens")
    if policy.advantages.ndim == 1 and sequences == count:
        _check_one_token_each(offsets, sequences)


def _is_per_token(values: Tensor, sequences: int) -> bool:
    """Read [S] and [S, 1] as one per sequence, [N] and [1, N] as one per token."""
    if values.ndim == 2:
        return values.shape != (sequences, 1)
    return values.numel() != sequences


def _check_one_token_each(offsets: Tensor, sequences: int) -> None:
    """Raise ValueError where S = N advantages could be meant for sequences or for tokens."""
    one_each = (offsets.diff() == 1).all()
    if not values_may_be_read(offsets):
        torch._assert_async(
            one_each, "as many sequences as tokens: pass advantages[:, None] or advantages[None]"
        )
    elif not one_each:
        raise ValueError(
            f"advantages has shape ({sequences},), and there are {sequences} sequences and "
            f"{sequences} tokens: pass advantages[:, None] for one per sequence, or "
            "advantages[None] for one per token"
        )


def _check_length(
    name: str, values: Tensor, anchor: str, rows: Tensor, lengths: dict[str, int]
) -> None:
    if values.ndim != 1 or values.numel() not in lengths.values():
        accepted = " or ".join(f"({length},)" for length in lengths.values())
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and {anchor} {tuple(rows.shape)}; "
            f"wanted {' or '.join(lengths)} = {accepted}"
        )


def _check_number(name: str, values: Tensor, anchor: str, rows: Tensor) -> None:
    if not values.is_floating_point():
        raise TypeError(f"{name} is {values.dtype}; wanted floating point: pass {name}.float()")
    check_device(name, values, anchor, rows)
