"""Check logits, hidden states, head and targets, and say how to walk their rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_device, check_numbers, is_sharded, values_may_be_read
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats
from rrgkern.overwritten import check_not_overwritten


class FromLogits(NamedTuple):
    """Arguments of the forward from logits [N, V] or [B, L, V], targets [N].

    Rows outside of `keep` [N] bool are not read, and their results are 0.
    """

    logits: Tensor
    targets: Tensor
    temperature: float
    entropy: bool
    keep: Tensor | None = None


class FromLogitsBackward(NamedTuple):
    """Arguments of the backward to the logits."""

    coefficients: Coefficients
    logits: Tensor
    targets: Tensor
    stats: SoftmaxStats
    temperature: float


class FromHidden(NamedTuple):
    """Arguments of the forward from hidden [N, H], weight [V, H], bias [V], targets [N].

    `softcap` is 0 for none; `keep` as in `FromLogits`.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    temperature: float
    softcap: float
    entropy: bool
    keep: Tensor | None = None


class FromHiddenBackward(NamedTuple):
    """Arguments of the backward to hidden states, weight and bias."""

    coefficients: Coefficients
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    stats: SoftmaxStats
    temperature: float
    softcap: float
    want_hidden: bool
    want_weight: bool
    want_bias: bool


class FromHiddenBackwardInto(NamedTuple):
    """The same, adding the gradient of the weight, always wanted, to `weight_total` [V, H]."""

    weight_total: Tensor
    backward: FromHiddenBackward


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Beyond, products with 1/T leave the range of fp32.
COLDEST, HOTTEST = 1e-30, 1e30


def check_logits(logits: Tensor, targets: Tensor, temperature: float) -> None:
    """Refuse logits [..., V], targets [...] or a temperature that do not fit."""
    if logits.dtype not in FLOATS:
        raise TypeError(f"logits is {logits.dtype}, wanted float16, bfloat16, float32 or float64")
    if targets.dtype != torch.int64:
        raise TypeError(f"targets is {targets.dtype}, wanted int64")
    if logits.ndim < 1 or logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits is {list(logits.shape)} and targets {list(targets.shape)}, wanted [..., V] "
            "and [...]"
        )
    if logits.shape[-1] < 1:
        raise ValueError(f"logits is {list(logits.shape)}, wanted a vocabulary of at least 1")
    check_device("targets", targets, "logits", logits)
    check_numbers(
        "divide each row of the logits by its own before the call", temperature=temperature
    )
    if not COLDEST <= temperature <= HOTTEST:
        raise ValueError(
            f"temperature is {temperature}, wanted a positive number from {COLDEST} to {HOTTEST}"
        )
    if not torch.compiler.is_compiling():
        check_not_overwritten(logits)


def check_head(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None,
    temperature: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor | None]:
    """weight and bias, gathered where they are sharded.

    Raises:
        TypeError: a dtype that is not served, dtypes that differ, a DTensor of rows.
        ValueError: shapes that do not fit, devices that differ, a temperature or softcap that is
            not positive.
    """
    if hidden.dtype not in FLOATS:
        raise TypeError(f"hidden is {hidden.dtype}, wanted float16, bfloat16, float32 or float64")
    for name, tensor in (("weight", weight), ("bias", bias)):
        wide = hidden.dtype.itemsize == 2
        if tensor is not None and tensor.dtype not in (
            (hidden.dtype, torch.float32) if wide else (hidden.dtype,)
        ):
            raise TypeError(
                f"{name} is {tensor.dtype} and hidden is {hidden.dtype}, wanted one dtype: "
                f"pass {name}.to(hidden.dtype)"
            )
    if targets.dtype != torch.int64:
        raise TypeError(f"targets is {targets.dtype}, wanted int64")
    if weight.ndim != 2 or hidden.ndim < 1 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"hidden is {list(hidden.shape)} and weight {list(weight.shape)}, "
            "wanted [..., H] and [V, H]"
        )
    if hidden.shape[:-1] != targets.shape:
        raise ValueError(
            f"targets is {list(targets.shape)}, wanted {list(hidden.shape[:-1])}: one per hidden "
            "state"
        )
    if weight.shape[0] < 1:
        raise ValueError("weight has no rows, wanted a vocabulary of at least 1")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias is {list(bias.shape)}, wanted {[weight.shape[0]]}")
    for name, tensor in (("weight", weight), ("bias", bias), ("targets", targets)):
        check_device(name, tensor, "hidden", hidden)
    check_numbers(
        "divide each row of hidden by its own before the call, where there is no bias and no "
        "softcap, or compose this of token_logps",
        temperature=temperature,
        softcap=softcap,
    )
    for name, value in (("temperature", temperature), ("softcap", softcap)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}, wanted a positive number")
    return gathered(weight), None if bias is None else gathered(bias)


def check_targets(targets: Tensor, vocabulary: int, keep: Tensor | None = None) -> None:
    """Refuse a target outside [0, vocabulary) in a row that `keep` [N] keeps: IndexError.

    On CUDA the check is a device assertion, so that nothing waits for the GPU;
    RRGKERN_CHECK=1 makes it wait and raise here, with the row that is wrong.
    """
    right = targets == targets.clamp(0, vocabulary - 1)
    if keep is not None:
        right |= ~keep
    if values_may_be_read(targets):
        rows = (~right).nonzero().flatten()
        if len(rows):
            row = int(rows[0])
            raise IndexError(
                f"targets[{row}] is {int(targets[row])} ({len(rows)} such rows), wanted 0 to "
                f"{vocabulary - 1}: leave ignored tokens (-100) out by mask"
            )
    else:
        torch._assert_async(
            right.all(), "a target is outside the vocabulary; RRGKERN_CHECK=1 names its row"
        )


BYTES_PER_LOAD = 16


def as_rows(logits: Tensor) -> Tensor:
    """View logits as [N, V], or [B, L, V] where `reshape` would copy."""
    evenly_spaced = logits.ndim == 3 and logits.stride(0) == logits.stride(1) * logits.shape[1]
    if logits.ndim == 3 and not evenly_spaced:
        return logits
    return logits.reshape(-1, logits.shape[-1])


def row_walk(logits: Tensor) -> tuple[int, int, int, int]:
    """Compute strides of batch, row and column, and rows per batch.

    For [N, V] or [B, L, V].

    Row r begins at (r // rows per batch) * batch stride + (r % rows per batch) * row stride.
    """
    batch = logits.stride(0) if logits.ndim == 3 else 0
    return batch, logits.stride(-2), logits.stride(-1), max(1, logits.shape[-2])


def columns_per_load(logits: Tensor) -> int:
    """Columns of a 128-bit load, or 1 where rows are not aligned to it."""
    size = logits.element_size()
    offsets = (logits.data_ptr(), *(stride * size for stride in logits.stride()[:-1]))
    if logits.stride(-1) != 1 or any(offset % BYTES_PER_LOAD for offset in offsets):
        return 1
    return BYTES_PER_LOAD // size


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor on every rank; a plain tensor as it is.

    Its gradient is averaged over the ranks on its way back to the shards, as FSDP2 does with the
    gradients that pass through its hooks.
    """
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Partial

    ranks = tensor.device_mesh.ndim  # type: ignore[attr-defined]
    whole: Tensor = tensor.full_tensor(  # type: ignore[attr-defined]
        grad_placements=[Partial("avg")] * ranks
    )
    return whole
