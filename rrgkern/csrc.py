"""Load the compiled extension `rrgkern/_C.so`, and say what it holds.

The package imports and works without it: every op then runs its reference, and says so once.
In a checkout that was installed without `-e` sources hide what is installed, whose extension then
serves them where it was built from equal ones.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
HOW_TO_BUILD = "build it with `pip install -c constraints.txt -e .` in the repository"


def _find() -> tuple[Path, str]:
    """Find the extension; without one, where it should be and why that of elsewhere serves not."""
    own, fault = HERE / "_C.so", "the compiled extension is missing"
    for installed in () if own.exists() else metadata.distributions(name="rrgkern"):
        package = Path(str(installed.locate_file("rrgkern")))
        if not (package / own.name).exists():
            continue
        for source in HERE.rglob("*.py"):
            hidden = package / source.relative_to(HERE)
            if not hidden.exists() or hidden.read_bytes() != source.read_bytes():
                fault = (
                    f"{HERE} hides the rrgkern of {package.parent}, which serves elsewhere; its "
                    f"compiled extension is of other sources ({source.relative_to(HERE)} differs)"
                )
                return own, fault
        return package / own.name, fault
    return own, fault


LIBRARY, _FAULT = _find()
# RRGKERN_LIBRARY names another build of it, one with sanitizers for example.
LIBRARY = Path(os.environ.get("RRGKERN_LIBRARY", LIBRARY))
MISSING = f"{_FAULT}: {HOW_TO_BUILD}"


@dataclass(frozen=True)
class BuildInfo:
    """Source of the extension: rooms as "room:device", SM versions, compiler."""

    rooms: frozenset[str]
    architectures: tuple[str, ...]
    compiler: str


@functools.cache
def load() -> Any:
    """Load the extension as a tvm-ffi module: `load().mccs_cpu(tensor, ...)`.

    Raises:
        RuntimeError: the extension was never built, or does not load; the message says how to
            build it.
    """
    if not LIBRARY.exists():
        raise RuntimeError(MISSING)
    import tvm_ffi

    try:
        return tvm_ffi.load_module(LIBRARY)
    except (OSError, RuntimeError) as error:
        raise RuntimeError(
            f"rrgkern's compiled extension does not load ({error}): re{HOW_TO_BUILD}"
        ) from error


@functools.cache
def build_info() -> BuildInfo | None:
    """Read what the extension holds; None without one. A broken one raises (see `load`)."""
    if not LIBRARY.exists():
        return None
    rooms, architectures, compiler = load().build_info().split("|")
    return BuildInfo(
        frozenset(rooms.split(";")), tuple(filter(None, architectures.split(";"))), compiler
    )


@functools.cache
def why_not(room: str, device: str) -> str | None:
    """Say why the extension does not serve `room` on `device`; None if it does."""
    info = build_info()
    if info is None:
        return MISSING
    if device == "cuda" and torch.version.hip:  # whose gfx90a and gfx942 call themselves sm_90
        return "csrc holds CUDA, which no AMD GPU runs"
    if f"{room}:{device}" not in info.rooms:
        if device == "cuda" and not info.architectures:
            return (
                f"the extension is CPU only: install the CUDA toolkit and re{HOW_TO_BUILD}, with "
                "RRGKERN_BUILD=cuda"
            )
        return f"the compiled extension is older than csrc/{room}: re{HOW_TO_BUILD}"
    if device == "cuda" and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        if not runs_on(info.architectures, 10 * major + minor):
            return (
                f"the extension was compiled for sm_{' sm_'.join(info.architectures)} and this GPU "
                f"is sm_{major}{minor}: re{HOW_TO_BUILD}, with RRGKERN_CUDA_ARCHS={major}{minor}"
            )
    return None


def runs_on(architectures: tuple[str, ...], capability: int) -> bool:
    """Return True when a GPU of `capability` (90 for sm_90) runs code for `architectures`.

    Machine code runs within its major version on the same or a later minor one, that of `90a` on
    sm_90 alone. The last architecture is kept as PTX too, which any later GPU compiles, but not
    that of `90a` or `100f`.
    """
    if str(capability) + "a" in architectures:
        return True
    compiled = [int(a.removesuffix("f")) for a in architectures if not a.endswith("a")]
    native = any(a // 10 == capability // 10 and a <= capability for a in compiled)
    last = architectures[-1] if architectures else "a"
    return native or (last.isdigit() and int(last) <= capability)
