"""Doctor: `python -m rrgkern` prints what this machine has and who serves each op."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import platform
from importlib import metadata
from typing import Any

import torch

import rrgkern
from rrgkern import csrc, dispatch

_PACKAGES = ("torch", "triton", "apache-tvm-ffi", "numpy", "transformers", "peft", "vllm")


def report() -> dict[str, Any]:
    """Collect all that the doctor knows, as plain data (`--json` prints it)."""
    return {
        "versions": _versions(),
        "gpus": _gpus(),
        "extension": _extension(),
        "triton_interpreter": dispatch.interpreting(),
        "ops": _ops(),
    }


def _versions() -> dict[str, str]:
    versions = {"rrgkern": rrgkern.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    if torch.version.hip:
        return versions | {"rocm of torch": torch.version.hip}
    return versions | {"cuda of torch": torch.version.cuda or "none, a CPU build"}


def _gpus() -> list[dict[str, Any]]:
    properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [
        {"name": p.name, "target": _target(p), "gib": round(p.total_memory / 2**30, 1)}
        for p in properties
    ]


def _target(properties: Any) -> str:
    """Name the target that a GPU's code is compiled for: sm_90, gfx942."""
    if torch.version.hip:
        return str(properties.gcnArchName.partition(":")[0])
    return f"sm_{properties.major}{properties.minor}"


def _extension() -> dict[str, Any]:
    try:
        info = csrc.build_info()
    except RuntimeError as error:
        return {"state": str(error)}
    if info is None:
        return {"state": csrc.MISSING}
    return {
        "state": "CPU and CUDA" if info.architectures else "CPU only",
        "file": str(csrc.LIBRARY),
        "architectures": [f"sm_{arch}" for arch in info.architectures],
        "rooms": sorted(info.rooms - {"build_info:cpu"}),
        "compiler": info.compiler,
    }


def _ops() -> dict[str, dict[str, str]]:
    for module in pkgutil.iter_modules(rrgkern.__path__):
        if module.ispkg:
            importlib.import_module(f"rrgkern.{module.name}")
    names = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    return {
        name: {device: _served_by(name, device) for device in ("cpu", "cuda")}
        for name in sorted(n for n in names if n.startswith("rrgkern::"))
    }


def _served_by(name: str, device: str) -> str:
    try:
        served = dispatch.served_by(name, device)
        untried = torch.version.hip and device == "cuda" and served.startswith("triton")
        return f"{served} (compiles for AMD; no card has run it)" if untried else served
    except RuntimeError as error:
        return f"fails: {error}"


def _print(facts: dict[str, Any]) -> None:
    for package, version in facts["versions"].items():
        print(f"{package:16} {version}")
    for index, gpu in enumerate(facts["gpus"]):
        print(f"{f'GPU {index}':16} {gpu['name']}, {gpu['target']}, {gpu['gib']} GiB")
    if not facts["gpus"]:
        print(f"{'GPU':16} none: the cuda column below says what would serve there")
    extension = facts["extension"]
    print(f"{'extension':16} {extension['state']}")
    for key in ("file", "architectures", "rooms"):
        if value := extension.get(key):
            print(f"{'  ' + key:16} {value if isinstance(value, str) else ' '.join(value)}")
    if facts["triton_interpreter"]:
        print(f"{'triton':16} interpreted on CPU tensors (TRITON_INTERPRET=1)")

    reasons: dict[str, int] = {}
    rows = [("op", "cpu", "cuda")]
    rows += [
        (name, _cell(served["cpu"], reasons), _cell(served["cuda"], reasons))
        for name, served in facts["ops"].items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    for reason, number in reasons.items():
        print(f"[{number}] {reason}")


def _cell(served: str, reasons: dict[str, int]) -> str:
    """Shorten "reference (why)" to "reference [1]"; the reason is kept for below the table."""
    name, _, reason = served.partition(" (")
    if not reason:
        return name
    return f"{name} [{reasons.setdefault(reason.removesuffix(')'), len(reasons) + 1)}]"


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `python -m rrgkern [--json]`."""
    parser = argparse.ArgumentParser(prog="python -m rrgkern", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    facts = report()
    if parser.parse_args(arguments).json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)


if __name__ == "__main__":
    main()
