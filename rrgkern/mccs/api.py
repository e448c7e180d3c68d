"""The margin-based cosine reward of MRG-R1 on CheXbert labels."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import check_device, check_number, check_tensors
from rrgkern.mccs.op import mccs_op

COLUMNS = 14
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def mccs(pred: Tensor, truth: Tensor, *, margin: float = 0.0, both_blank: float = 0.0) -> Tensor:
    """Compute the margin-based cosine of predicted and true CheXbert labels (MRG-R1).

    With z the label vector (blank 0, positive and uncertain +1, negative −1; "No Finding", the
    last column, is left out):

        CCS = ⟨z, z*⟩ / ((‖z‖ + 1e-8)(‖z*‖ + 1e-8))
        reward = max((CCS − m) / (1 − m), 0)

    A vector without direction (all blank) earns 0 for every margin. The result is the same bit
    for bit on CPU, CUDA and in the reference.

    Args:
        pred: [..., 14] class ids 0 blank, 1 positive, 2 negative, 3 uncertain, in CheXbert's
            column order; int8, int16, int32 or int64.
        truth: the same shape and device as `pred`, any of those dtypes.
        margin: m in (−1, 1). The paper does not state it.
        both_blank: the reward, in [0, 1], where both vectors are all blank.

    Returns:
        [...] fp32 rewards in [0, 1]; no gradient.

    Raises:
        TypeError: ids that are not integers.
        ValueError: shapes, devices, margin or both_blank out of range; an id outside 0..3. On
            CUDA a wrong id is a device assertion, or this error under RRGKERN_CHECK=1.
    """
    check_tensors(pred=pred, truth=truth)
    for name, ids in (("pred", pred), ("truth", truth)):
        if ids.dtype not in _INTEGERS:
            raise TypeError(f"mccs: {name} is {ids.dtype}, wanted int8, int16, int32 or int64 ids")
    if pred.shape != truth.shape or pred.ndim == 0 or pred.shape[-1] != COLUMNS:
        raise ValueError(
            f"mccs: pred is {list(pred.shape)} and truth {list(truth.shape)}, wanted two equal "
            f"shapes [..., {COLUMNS}], one column per CheXbert observation"
        )
    check_device("mccs: pred", pred, "truth", truth)
    check_number("margin", margin)
    check_number("both_blank", both_blank)
    if not -1.0 < margin < 1.0:
        raise ValueError(f"mccs: margin is {margin}, wanted a number strictly between -1 and 1")
    if not 0.0 <= both_blank <= 1.0:
        raise ValueError(f"mccs: both_blank is {both_blank}, wanted a reward between 0 and 1")
    dtype = torch.promote_types(pred.dtype, truth.dtype)
    rows = (ids.to(dtype).reshape(-1, COLUMNS) for ids in (pred, truth))
    rewards: Tensor = mccs_op(*rows, float(margin), float(both_blank))
    return rewards.reshape(pred.shape[:-1])
