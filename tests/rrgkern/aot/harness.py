"""Compile the kernels that a launcher launches, for GPUs that are not there.

A room lists its cases in `tests/rrgkern/<room>/aot_cases.py`:

    CASES = {
        "forward bf16": Case(lambda: launcher(torch.empty(8192, 151936, device="meta"), ...)),
    }

A case calls the room's own launcher; nothing runs. Each `kernel[grid](...)` it reaches is recorded
with the signature, constexprs, divisibility attributes and options that Triton's own binder
derives from the arguments, so what is gated is what a GPU would get, and no second list of
argument types can go stale. Tensors on the "meta" device cost no memory and lie where their
storage offset says, the storage itself at a multiple of 16 bytes; a launcher that reads values
takes CPU tensors (an untouched `torch.empty` costs none).

`test_gates.py` compiles every case of every room for sm_90, and the widest of each kernel for the
other TARGETS (RRGKERN_AOT=all: every case), and holds them to their marks; AMD's compile too.
`python -m tests.rrgkern.aot [module ...]` prints the table. Cases run in a process of
their own without TRITON_INTERPRET, under which `@triton.jit` has no compiler behind it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.rrgkern.aot.sass import Assembly, disassemble, occupancy
from tests.rrgtrain.runs import start_process

TARGETS = (75, 80, 86, 89, 90, 100, 103, 120)
AMD = ("gfx90a", "gfx942", "gfx950")  # MI250, MI300X, MI355X
# What AMD's assembler says of a kernel.
REPORTED = {"spills": "vgpr_spill_count", "threads": "max_flat_workgroup_size"}
ROOMS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Case:
    """One call of a launcher, and what its kernels are held to beside "no spill".

    `streaming`: every kernel must load 128 bits at a time (False where V, strides or pointers are
    not divisible, or where a kernel handles a few numbers per sequence). `matrix`: every kernel
    must use tensor-core instructions. `bare`: no `for` of a kernel compares integers column by
    column, be it a mask or the target. `under_way`: bytes that a multiprocessor must wait for at
    once in each loop that loads 128 bits, with at most 64 registers a thread. `kernels`: how many
    the launcher is expected to launch. `least`: the compute capability from which on it does.
    """

    run: Callable[[], Any]
    streaming: bool = True
    matrix: bool = False
    bare: bool = False
    under_way: int = 0
    kernels: int = 1
    least: int = 0


def per_row(rows: int, dtype: torch.dtype) -> Tensor:
    """A number a row, [rows], that begins where a slice may: aligned for some `rows` only."""
    return torch.empty(2 * rows, dtype=dtype, device="meta")[rows:]


class Pointer:
    """A meta tensor as Triton's binder sees one: a dtype, and an address for its alignment."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype = tensor.dtype
        self._address = tensor.storage_offset() * tensor.element_size()

    def data_ptr(self) -> int:
        """The distance from the beginning of the storage."""
        return self._address


@dataclass(frozen=True)
class Launch:
    """Hold what Triton's binder made of one `kernel[grid](...)`."""

    kernel: Any
    signature: dict[str, str]
    constexprs: dict[tuple[int, ...], Any]
    attrs: dict[tuple[int, ...], Any]
    options: dict[str, Any]
    grid: tuple[int, ...]

    def key(self) -> str:
        """Equal for two launches exactly when they share a compiled kernel."""
        parts = (self.kernel.__name__, self.signature, self.constexprs, self.attrs, self.options)
        return repr(parts)


@dataclass(frozen=True)
class Compiled:
    """One kernel of one case for one target."""

    room: str
    case: str
    kernel: str
    cc: int
    num_warps: int
    shared_bytes: int
    occupancy: float
    streaming: bool
    matrix: bool
    bare: bool
    under_way: int
    compared: int  # comparisons of blocks of integers inside `for`
    assembly: Assembly


def target_of(cc: int | str) -> Any:
    """Return Triton's target of a compute capability, or of one of AMD's."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget("hip", cc, 64) if isinstance(cc, str) else GPUTarget("cuda", cc, 32)


def compile_for(
    kernel: Any,
    signature: dict[str, str],
    constexprs: dict[Any, Any],
    attrs: dict[Any, Any],
    cc: int | str,
    options: dict[str, Any] | None = None,
) -> Any:
    """`triton.compile` for `target_of(cc)`; needs a process without TRITON_INTERPRET."""
    from triton.compiler import ASTSource, compile

    source = ASTSource(kernel, signature, constexprs, attrs)
    return compile(source, target=target_of(cc), options=options)


@contextmanager
def recorded_launches(cc: int | str) -> Iterator[list[Launch]]:
    """Record what the body launches, as Triton would specialise it for `cc`, and run none of it."""
    from triton.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    backend = make_backend(target_of(cc))
    launches: list[Launch] = []

    def record(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        args = tuple(Pointer(x) if isinstance(x, Tensor) and x.is_meta else x for x in args)
        binder = create_function_from_signature(self.signature, self.params, backend)
        bound, specialization, options = binder(*args, **kwargs)
        options, signature, constexprs, attrs = self._pack_args(
            backend, kwargs, bound, specialization, options
        )
        size = grid(bound) if callable(grid) else grid
        launches.append(
            Launch(self, signature, constexprs, attrs, dict(options.__dict__), tuple(size))
        )

    rocm = "of the case" if isinstance(cc, str) else None
    with patch.object(JITFunction, "run", record), patch.object(torch.version, "hip", rocm):
        yield launches


def distinct_kernels(calls: list[Callable[[], Any]], cc: int = 90) -> int:
    """Count the compilations that a sequence of launcher calls would cause."""
    with recorded_launches(cc) as launches:
        for call in calls:
            call()
    return len({launch.key() for launch in launches})


def compared_in_loops(ttgir: str) -> int:
    """Count comparisons of blocks of integers inside `for` loops: masks, and columns to seek."""
    count = depth = 0
    loops: list[int] = []
    for line in ttgir.splitlines():
        if "scf.for" in line:
            loops.append(depth)
        count += bool(loops) and "arith.cmpi" in line and "tensor<" in line
        depth += line.count("{") - line.count("}")
        if loops and line.lstrip().startswith("}") and depth <= loops[-1]:
            loops.pop()
    return count


def listed_modules() -> list[str]:
    """The modules of the rooms that list ahead-of-time cases."""
    folders = sorted(path.parent.relative_to(ROOMS).parts for path in ROOMS.rglob("aot_cases.py"))
    return [".".join(("tests.rrgkern", *folder, "aot_cases")) for folder in folders]


def compile_cases(
    module: str, targets: tuple[int, ...] = TARGETS, only: Container[tuple[str, str]] | None = None
) -> Iterator[Compiled]:
    """Compile what `module` lists in CASES, in this process; see `compiled` for one that can.

    `only`: those of these cases and kernels.
    """
    cases: dict[str, Case] = importlib.import_module(module).CASES
    room = module.split(".")[-2]
    made: list[tuple[str, int, str, Any]] = []
    for name, case in cases.items():
        for cc in (cc for cc in targets if cc >= case.least):
            with recorded_launches(cc) as launches:
                case.run()
            if len(launches) != case.kernels:
                raise AssertionError(
                    f"{room}: case {name!r} launched {len(launches)} kernels, expected "
                    f"{case.kernels}"
                )
            for launch in launches:
                kernel = launch.kernel.__name__
                if only is not None and (name, kernel) not in only:
                    continue
                binary = compile_for(
                    launch.kernel,
                    *(launch.signature, launch.constexprs, launch.attrs),
                    *(cc, launch.options),
                )
                made.append((name, cc, kernel, binary))
    assemblies = {
        target: disassemble((b.asm["cubin"] for _, cc, _, b in made if cc == target), target)
        for target in targets
    }
    for name, cc, kernel, binary in made:
        case, assembly = cases[name], assemblies[cc][binary.asm["cubin"]]
        shared, num_warps = binary.metadata.shared, binary.metadata.num_warps
        yield Compiled(
            *(room, name, kernel, cc, num_warps, shared),
            occupancy=occupancy(assembly, shared, num_warps, cc),
            streaming=case.streaming,
            matrix=case.matrix,
            bare=case.bare,
            under_way=case.under_way,
            compared=compared_in_loops(binary.asm["ttgir"]),
            assembly=assembly,
        )


def compile_widest(module: str) -> Iterator[Compiled]:
    """Compile all cases for sm_90; for the other targets, of each kernel the widest.

    That is the case with most registers on sm_90, among those that are held to the same marks.
    """
    cases: dict[str, Case] = importlib.import_module(module).CASES
    widest: dict[object, Compiled] = {}
    for found in compile_cases(module, (90,)):
        yield found
        key = found.kernel, replace(cases[found.case], run=None, kernels=0)
        if key not in widest or widest[key].assembly.registers < found.assembly.registers:
            widest[key] = found
    others = tuple(target for target in TARGETS if target != 90)
    yield from compile_cases(module, others, {(k.case, k.kernel) for k in widest.values()})


def compile_amd(module: str) -> Iterator[dict[str, Any]]:
    """Compile what `module` launches for AMD; yields what the assembler REPORTED.

    All for gfx942, of each kernel one for the others.
    """
    for target in AMD:
        with recorded_launches(target) as launches:
            for case in importlib.import_module(module).CASES.values():
                case.run()
        every = target == "gfx942"
        distinct = {x.key() if every else x.kernel.__name__: x for x in launches}
        for launch in distinct.values():
            made = (launch.signature, launch.constexprs, launch.attrs, target, launch.options)
            code = compile_for(launch.kernel, *made).asm["amdgcn"]
            figures = {k: int(re.findall(rf"{v}: *(\d+)", code)[0]) for k, v in REPORTED.items()}
            yield {"kernel": launch.kernel.__name__, "target": target, **figures}


@functools.cache
def compiled(*modules: str, widest: bool = False) -> tuple[Compiled, ...]:
    """The cases of `modules`, compiled by a process without the interpreter; once a session.

    `widest`: by `compile_widest`.
    """
    options = ("--json", "--widest") if widest else ("--json",)
    lines = in_compiling_process("-m", "tests.rrgkern.aot", *options, *modules).splitlines()
    return tuple(_from_json(line) for line in lines)


def in_compiling_process(*arguments: str) -> str:
    """Standard output of this Python with `arguments`, run where Triton can compile.

    The process is forked from the server of whole runs, which has imported torch already and does
    not run Triton's interpreter.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        process = start_process(_as_python_would, arguments, environment, folder)
        process.join()
        printed, told = (Path(folder, name) for name in ("out", "err"))
        if process.exitcode:
            raise AssertionError(f"{' '.join(arguments)} failed:\n{told.read_text()[-4000:]}")
        return printed.read_text()


def _as_python_would(arguments: tuple[str, ...], environment: dict[str, str], folder: str) -> None:
    """Run `-c TEXT` or `-m MODULE WORDS` in this process, which has just been forked."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.chdir(ROOMS.parents[1])
    os.environ.clear()
    os.environ.update(environment)
    kind, named, *words = arguments
    sys.argv = [named, *words]
    if kind == "-c":
        exec(compile(named, "-c", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(named, run_name="__main__", alter_sys=True)


def to_json(compiled: Compiled) -> str:
    """One line; the inverse is used by `compiled`."""
    return json.dumps(asdict(compiled))


def _from_json(line: str) -> Compiled:
    fields = json.loads(line)
    assembly = fields.pop("assembly")
    for name in ("load_bits", "store_bits"):
        assembly[name] = {int(bits): count for bits, count in assembly[name].items()}
    return Compiled(**fields, assembly=Assembly(**assembly))
