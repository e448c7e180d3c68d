"""csrc/<room>/cuda.cu: compiled to PTX by nvcc, launched by its own host code, run by the machine.

`nvcc` and its headers are packages of the test extra. The host code of a room is linked with
`cudart.cc` in the place of CUDA's runtime, so the sizes of a grid, the bytes of shared memory and
the structs of arguments are those that a GPU would get.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from rrgkern import csrc as library
from tests.ptx.memory import Memory
from tests.ptx.parse import Kernel, parse
from tests.ptx.run import Machine

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "ptx"
ROOMS = sorted(path.parent.name for path in (ROOT / "csrc").glob("*/cuda.cu"))
LAUNCH = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip


def toolkit() -> Path:
    """The folder of nvcc's packages.

    Raises:
        RuntimeError: they are not installed; the message says how to.
    """
    found = importlib.util.find_spec("nvidia")
    places = list(found.submodule_search_locations or ()) if found else []
    for place in places:
        for folder in sorted(Path(place).glob("cu*")):
            if (folder / "bin" / "nvcc").exists() and (folder / "nvvm" / "bin" / "cicc").exists():
                return folder
    raise RuntimeError(
        "nvcc's packages are not installed: pip install -c constraints.txt -e '.[test]'"
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")


def _flags(tree: Path) -> list[str]:
    from tvm_ffi import libinfo

    # As setup.py compiles them: no contraction to fused multiply-adds.
    return ["-O2", "--fmad=false", "-lineinfo", "-std=c++17", f"-I{tree}", "-isystem",
            libinfo.find_include_path(), "-gencode=arch=compute_80,code=compute_80",
            "-ccbin", os.environ.get("CXX", "g++")]  # fmt: skip


Exchange = tuple[str, str, str]  # a file of csrc, a piece that stands there once, its replacement


@functools.cache
def mutated_ptx(*exchanges: Exchange) -> str:
    """PTX of the rooms whose files are exchanged, all of them at once: one of a kernel."""
    with tempfile.TemporaryDirectory() as directory:
        tree, output = Path(directory, "csrc"), Path(directory, "kernel.ptx")
        shutil.copytree(ROOT / "csrc", tree)
        for file, old, new in exchanges:
            source = (tree / file).read_text()
            assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {file}"
            (tree / file).write_text(source.replace(old, new))
        rooms = {Path(file).parts[0] for file, *_ in exchanges}
        unit = _unit(directory, sorted(rooms))
        _run(_nvcc(), "-ptx", *_flags(tree), str(unit), "-o", str(output))
        return output.read_text()


def _nvcc() -> str:
    return str(toolkit() / "bin" / "nvcc")


def _unit(directory: str, rooms: list[str]) -> Path:
    """One translation unit of the rooms: the headers are most of the work."""
    unit = Path(directory, "all.cu")
    unit.write_text("".join(f'#include "{room}/cuda.cu"\n' for room in rooms))
    return unit


@functools.cache
def built() -> tuple[str, Path]:
    """PTX of all rooms, and their host code linked with the runtime of `cudart.cc`.

    Kept in build/ptx by the contents of csrc.
    """
    text, library_path = (BUILD / f"csrc-{_contents()}.{kind}" for kind in ("ptx", "so"))
    if not (text.exists() and library_path.exists()):
        from tvm_ffi import libinfo

        folder = str(Path(libinfo.find_libtvm_ffi()).parent)
        with tempfile.TemporaryDirectory() as directory:
            unit, host = _unit(directory, ROOMS), Path(directory, "all.o")
            _run(_nvcc(), *_flags(ROOT / "csrc"), "--cudart", "none",
                 "-Xcompiler", "-fPIC,-fvisibility=hidden,-O0", "--keep", "--keep-dir", directory,
                 "-c", str(unit), "-o", str(host))  # fmt: skip
            output, runtime = Path(directory, "all.so"), Path(__file__).with_name("cudart.cc")
            _run(os.environ.get("CXX", "g++"), "-shared", "-fPIC", "-fvisibility=hidden",
                 str(runtime), str(host), f"-L{folder}", "-ltvm_ffi", f"-Wl,-rpath,{folder}",
                 "-o", str(output))  # fmt: skip
            _keep(library_path, output.read_bytes())
            _keep(text, Path(directory, "all.ptx").read_bytes())
    return text.read_text(), library_path


def _contents() -> str:
    files = [path for path in (ROOT / "csrc").rglob("*") if path.is_file()]
    digest = hashlib.sha256(str(toolkit()).encode())
    for file in [*sorted(files), Path(__file__), Path(__file__).with_name("cudart.cc")]:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


class Device:
    """Serves `rrgkern.csrc.load()`: an entry of a room that is listed runs in the machine."""

    def __init__(self, mutant: str = "", most_blocks: int = 65535) -> None:
        import tvm_ffi

        text, path = built()
        self.launched: list[str] = []
        self.most_blocks = most_blocks
        self.error: BaseException | None = None
        self.memory: Memory | None = None
        self.own = library.load()
        self.callback = LAUNCH(self._on_launch)
        ctypes.CDLL(str(path)).on_launch(self.callback)
        self.module = tvm_ffi.load_module(path)
        self.kernels = {**_parsed(text), **(parse(mutant) if mutant else {})}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            entry = self.module.get_function(re.sub("_cpu$", "_cuda", name))
        except AttributeError:
            return getattr(self.own, name)
        return lambda *arguments: self._call(entry, arguments)

    def _call(self, entry: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        tensors = [value for value in arguments if isinstance(value, Tensor)]
        self.memory = Memory(tensors)
        self.error = None
        entry(*(self._moved(value) if isinstance(value, Tensor) else value for value in arguments))
        if self.error is not None:
            raise self.error
        self.memory.copy_back()

    def _moved(self, tensor: Tensor) -> Tensor:
        """The same tensor in the machine's memory."""
        assert self.memory is not None
        if not tensor.numel():
            return tensor
        begin = self.memory.address(tensor) - self.memory.base
        data = self.memory.space.data[begin : begin + tensor.numel() * tensor.element_size()]
        return torch.from_numpy(data).view(tensor.dtype).view(tensor.shape)

    def _on_launch(self, name: bytes, sizes: Any, shared: int, arguments: Any) -> None:
        try:
            kernel = self.kernels[name.decode()]
            end = max(v.offset + v.size for v in kernel.parameters.values())
            parameters = bytearray(end)
            for place, variable in enumerate(kernel.parameters.values()):
                value = ctypes.string_at(arguments[place], variable.size)
                parameters[variable.offset : variable.offset + variable.size] = value
            assert self.memory is not None
            grid = [min(sizes[0], self.most_blocks), *sizes[1:3]]
            machine = Machine(kernel, self.memory, grid, sizes[3:6], bytes(parameters), shared)
            self.launched.append(kernel.name)
            machine.run()
        except BaseException as error:  # an exception cannot cross the C code: it is raised after
            self.error = self.error or error


@functools.cache
def _parsed(text: str) -> dict[str, Kernel]:
    return parse(text)


@contextmanager
def device(mutant: str = "", most_blocks: int = 65535) -> Iterator[Device]:
    """Run csrc's kernels, those in the PTX `mutant` in place of their own, as ops are called.

    With fewer blocks than it asks for, a grid-stride loop takes more turns.
    """
    machine = Device(mutant, most_blocks)
    with mock.patch.object(library, "load", return_value=machine):
        yield machine
