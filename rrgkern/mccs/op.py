"""The op rrgkern::mccs and who serves it: csrc/mccs on CPU and CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import values_may_be_read
from rrgkern.dispatch import register_csrc
from rrgkern.mccs.reference import mccs_reference


@torch.library.custom_op("rrgkern::mccs", mutates_args=())
def mccs_op(pred: Tensor, truth: Tensor, margin: float, both_blank: float) -> Tensor:
    """[R, 14] and [R, 14] integers of one dtype -> [R] fp32."""
    _check_classes("pred", pred)
    _check_classes("truth", truth)
    return mccs_reference(pred, truth, margin, both_blank)


@mccs_op.register_fake
def _(pred: Tensor, truth: Tensor, margin: float, both_blank: float) -> Tensor:
    return pred.new_empty(pred.shape[0], dtype=torch.float32)


def _check_classes(name: str, ids: Tensor) -> None:
    valid = (ids >= 0) & (ids <= 3)
    if not values_may_be_read(ids):
        torch._assert_async(valid.all(), f"mccs: a class id of {name} is outside 0..3")
    elif not valid.all():
        row, column = (~valid).nonzero()[0].tolist()
        raise ValueError(
            f"mccs: {name}[{row}, {column}] is {int(ids[row, column])}, wanted a class id "
            "0 (blank), 1 (positive), 2 (negative) or 3 (uncertain)"
        )


def _launch(pred: Tensor, truth: Tensor, margin: float, both_blank: float) -> Tensor:
    reward = torch.empty(pred.shape[0], dtype=torch.float32, device=pred.device)
    if pred.is_cuda and values_may_be_read(pred):
        _check_classes("pred", pred)
        _check_classes("truth", truth)
    entry = getattr(csrc.load(), f"mccs_{pred.device.type}")
    entry(pred.contiguous(), truth.contiguous(), margin, both_blank, reward)
    return reward


register_csrc(mccs_op, _launch, ("cpu", "cuda"), "mccs")
