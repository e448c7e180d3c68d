"""Hand-written PTX around an instruction or a body, for the tests of the interpreter itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.ptx.memory import Memory
from tests.ptx.parse import SIZES, parse
from tests.ptx.run import Machine

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry handmade({parameters})
{{
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<32>;
    .reg .f32 %f<16>;
    .reg .b64 %d<32>;
    .reg .f64 %g<16>;
    .shared .align 16 .b8 table[1024];
{body}
    ret;
}}
"""


def text_of(body: str, tensors: int) -> str:
    """A kernel of `body`; %d0, %d1, ... are the addresses of its tensors, %r0 the thread."""
    names = [f"handmade_{k}" for k in range(tensors)]
    loads = [f"ld.param.u64 %d{k}, [{name}];" for k, name in enumerate(names)]
    lines = [*loads, "mov.u32 %r0, %tid.x;", body]
    parameters = ", ".join(f".param .u64 {name}" for name in names)
    return HEAD.format(parameters=parameters, body="\n".join(lines))


def execute(
    body: str, *tensors: Tensor, block: int = 32, grid: int = 1, shared_bytes: int = 0
) -> Machine:
    """Run `body` on the tensors, which it may change."""
    kernel = parse(text_of(body, len(tensors)))["handmade"]
    memory = Memory(tensors)
    addresses = [memory.address(tensor) for tensor in tensors]
    parameters = np.array(addresses, np.uint64).tobytes()
    machine = Machine(kernel, memory, [grid], [block], parameters, shared_bytes)
    machine.run()
    memory.copy_back()
    return machine


LETTER = {1: "h", 2: "h", 4: "r", 8: "d"}


def evaluate(instruction: str, kinds: list[str], columns: list[Any], result: str) -> np.ndarray:
    """Apply `instruction`, with %0 for its result and %1, ... for its operands, a lane a case.

    `columns` are arrays of the operands' bits; predicates are 0 or 1. Returns the result's bits.
    """
    count = len(columns[0])
    stored = [np.dtype(f"u{max(2, SIZES[kind])}") for kind in [*kinds, result]]
    tensors = [torch.from_numpy(np.array(c).astype(d).view(f"i{d.itemsize}"))
               for c, d in zip(columns, stored, strict=False)]  # fmt: skip
    out = torch.zeros(count, dtype={2: torch.int16, 4: torch.int32, 8: torch.int64}[
        stored[-1].itemsize])  # fmt: skip
    lines, names = [], []
    for place, (kind, dtype) in enumerate(zip([*kinds, result], stored, strict=True)):
        size = dtype.itemsize
        lines.append(f"mad.wide.u32 %d{20 + place}, %r0, {size}, %d{place};")
        register = f"%{LETTER[size]}{10 + place}"
        if place < len(kinds):
            lines.append(f"ld.global.b{8 * size} {register}, [%d{20 + place}];")
        if kind == "pred":
            lines.append(f"setp.ne.b16 %p{1 + place}, {register}, 0;")
            register = f"%p{1 + place}"
        names.append(register)
    for place, name in enumerate(names[:-1], 1):
        instruction = instruction.replace(f"%{place}", name)
    lines.append(instruction.replace("%0", names[-1]) + ";")
    size = stored[-1].itemsize
    if result == "pred":
        lines.append(f"selp.b16 %h15, 1, 0, {names[-1]};")
        names[-1] = "%h15"
    lines.append(f"st.global.b{8 * size} [%d{20 + len(kinds)}], {names[-1]};")
    execute("\n".join(lines), *tensors, out, block=count)
    return out.numpy().view(stored[-1])
