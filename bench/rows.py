"""Result rows: what was measured, on what, at which commit; one JSON object a line."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from rrgkern import csrc

ROOT = Path(__file__).parents[1]
RESULTS = Path(os.environ.get("OUT", ROOT / "bench" / "results"))
_PACKAGES = ("torch", "triton", "apache-tvm-ffi")


def device_name(device: torch.device) -> str:
    """The file that rows of a device go to: "nvidia-h200", "cpu"."""
    if device.type == "cpu":
        return "cpu"
    return torch.cuda.get_device_name(device).lower().replace(" ", "-")


def commit() -> str:
    """The commit measured, with "-dirty" when a tracked file other than rows differs from it."""
    if given := os.environ.get("RRGKERN_COMMIT"):
        return given
    try:
        head = _git("describe", "--always", "--exclude=*", "--abbrev=12").strip()
        changed = _git("status", "--porcelain", "-uno", "--", ".", ":!bench/results")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)


def versions(peers: tuple[str, ...] = ()) -> dict[str, str]:
    """Versions of Python, the core packages and those peers that are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES + peers:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def append(device: torch.device, row: Mapping[str, Any], folder: Path | None = None) -> None:
    """Append `row`, stamped with device, commit and date, to the device's file in `folder`.

    RRGKERN_ROWS names another file of the same folder; RRGKERN_RUN is kept as "run" in each row,
    which is how a suite finds its own again. Without the compiled extension, whose references would
    be taken for the kernels, nothing is written, and that is said.
    """
    if csrc.build_info() is None:
        print(f"no row is written: {csrc.MISSING}")
        return
    stamp = {
        "device": device_name(device),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat("T", "seconds"),
    }
    if run := os.environ.get("RRGKERN_RUN"):
        stamp["run"] = run
    folder = folder or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / path_of(device).name).open("a") as file:
        file.write(json.dumps({**stamp, **row}) + "\n")


def path_of(device: torch.device) -> Path:
    """The file that `append` writes to."""
    return RESULTS / f"{os.environ.get('RRGKERN_ROWS') or device_name(device)}.jsonl"


def of_run(path: Path, run: str) -> list[dict[str, Any]]:
    """The rows of `path` that were written with RRGKERN_RUN=`run`; none where there is no file."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in found if row.get("run") == run]
