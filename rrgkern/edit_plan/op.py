"""Dispatcher of the edit plan: csrc/edit_plan on CPU and CUDA. Integers have no gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import CustomOpDef

from rrgkern import csrc
from rrgkern.dispatch import register_csrc
from rrgkern.edit_plan.inputs import EditPlanInputs, ReleasedInputs
from rrgkern.edit_plan.reference import edit_plan_reference
from rrgkern.edit_plan.released import released_reference
from rrgkern.edit_plan.types import Script, blank_script
from rrgkern.ops import custom_op, flatten, pack


@custom_op("rrgkern::edit_plan", EditPlanInputs)
def edit_plan_op(*inputs: Any) -> Script:
    """(rule [R, width] int8, sentence and reference [R, width] int32, count [R] int32)."""
    plan = pack(EditPlanInputs, inputs)
    plan.check()
    return edit_plan_reference(plan.x, plan.y, plan.seeds, plan.options)


def _prepared(inputs: Sequence[Any]) -> tuple[tuple[Any, ...], Script]:
    """Check the arguments that both twins take, and allocate the script they fill in."""
    plan = pack(EditPlanInputs, _contiguous(inputs))
    plan.check()
    tau, tau_replace, max_edits, width, conflict_requires_spurious = plan.options
    options = (tau, tau_replace, max_edits, conflict_requires_spurious)
    return (*plan.x_rows, *plan.y_rows, plan.seeds, *options), blank_script(plan.seeds, width)


def _register(op: CustomOpDef, prepared: Callable[..., Any], per_report: int) -> None:
    """Serve `op` by csrc's functions of its name; `per_report` are the arguments of one side."""
    entry = op._qualname.removeprefix("rrgkern::")

    def launch_cpu(*inputs: Any) -> Script:
        arguments, script = prepared(inputs)
        getattr(csrc.load(), f"{entry}_cpu")(*arguments, *script, torch.get_num_threads())
        return script  # type: ignore[no-any-return]

    def launch_cuda(*inputs: Any) -> Script:
        arguments, script = prepared(inputs)
        arguments, space, slabs = _on_device(arguments, per_report)
        getattr(csrc.load(), f"{entry}_cuda")(*arguments, space, slabs, *script)
        return script  # type: ignore[no-any-return]

    register_csrc(op, launch_cpu, ("cpu",), "edit_plan")
    register_csrc(op, launch_cuda, ("cuda",), "edit_plan")


def _on_device(arguments: tuple[Any, ...], per_report: int) -> tuple[tuple[Any, ...], int, Tensor]:
    """Move the offsets to the device, and allocate what the blocks work in.

    Returns the arguments, the bytes that the largest pair needs, and the slabs of the blocks where
    that does not fit into shared memory.

    The sizes of the reports are the one thing that the host asks for: it waits for the device
    unless the offsets are on the host.
    """
    device = arguments[4].device
    places = (0, per_report, 2, per_report + 2)  # sentence offsets of x and y, entity offsets
    space = csrc.load().edit_plan_space(*(arguments[k].cpu() for k in places), per_report == 8)
    moved = list(arguments)
    for k in places:
        moved[k] = arguments[k].to(device, non_blocking=True)
    reports = len(arguments[0]) - 1
    blocks = min(reports, max(1, _SLABS // space)) if space > _SHARED_MEMORY else 0
    slabs = torch.empty(blocks * space, dtype=torch.uint8, device=device)
    return tuple(moved), space, slabs


# Shared memory that a block of any GPU has, and the most to take from the memory of all.
_SHARED_MEMORY, _SLABS = 48 << 10, 256 << 20

_register(edit_plan_op, _prepared, 7)


@edit_plan_op.register_fake
def _(*inputs: Any) -> Script:
    plan = pack(EditPlanInputs, inputs)
    return blank_script(plan.seeds, plan.options.width)


def _contiguous(inputs: Sequence[Any]) -> list[Any]:
    return [value.contiguous() if isinstance(value, Tensor) else value for value in inputs]


@custom_op("rrgkern::edit_plan_released", ReleasedInputs)
def edit_plan_released_op(*inputs: Any) -> Script:
    """The script of the published code, one edit a report."""
    plan = pack(ReleasedInputs, inputs)
    plan.check()
    return released_reference(plan.x, plan.y, plan.seeds, plan.options)


def _prepared_released(inputs: Sequence[Any]) -> tuple[tuple[Any, ...], Script]:
    plan = pack(ReleasedInputs, _contiguous(inputs))
    plan.check()
    return flatten(plan), blank_script(plan.seeds, 1)


_register(edit_plan_released_op, _prepared_released, 8)


@edit_plan_released_op.register_fake
def _(*inputs: Any) -> Script:
    return blank_script(pack(ReleasedInputs, inputs).seeds, 1)
