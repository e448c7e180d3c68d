"""Checkpoints of a run: whole or absent, checked when read, the last few kept.

A checkpoint is a directory `<number>-<label>` with `tensors.safetensors`, `state.pt` and, written
last, `manifest.json`: size and SHA-256 of the other two. It is filled under a hidden name, brought
to the disk, and then renamed; a directory without the dot is therefore complete, and what a crash
left under a hidden name is removed by the next owner of the run. Old ones are hidden by a rename
before they are deleted. So at every moment the newest visible checkpoint is a whole one, unless
the disk itself has lost something, which the hashes tell.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rrgtrain.errors import UserError, unreadable
from rrgtrain.state.tensorfile import HashedFile, read_tensors, write_tensors
from rrgtrain.state.tree import put_back, take_out
from rrgtrain.util.files import atomic_directory, remove_directory, remove_partial

FORMAT = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.pt", "manifest.json"
_NAME = re.compile(r"(\d{6,})-(.+)")
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole: where it lies and what it holds."""

    path: Path
    state: Any


class CheckpointStore:
    """The checkpoints below one directory; for the holder of the run's lock alone."""

    def __init__(self, directory: Path, keep: int) -> None:
        """keep: how many stay, at least 1. The disk needs room for one more while it is written."""
        self.directory, self.keep = directory, keep
        self._broken: set[str] = set()
        directory.mkdir(exist_ok=True)
        remove_partial(directory)

    def names(self) -> list[str]:
        """Names of the checkpoints, oldest first."""
        found = [(int(m[1]), p.name) for p in self.directory.iterdir() if (m := _match(p))]
        return [name for _, name in sorted(found)]

    def save(self, label: str, state: Any, about: Mapping[str, Any] | None = None) -> Path:
        """Writes a checkpoint of `state` (see `tree.take_out`) and removes the oldest.

        `about` is for a look that does not read it all; JSON must hold it. Raises OSError where
        the disk refuses; what was kept before is then untouched.
        """
        names = self.names()
        number = 1 + (int(names[-1].partition("-")[0]) if names else 0)
        path = self.directory / f"{number:06d}-{label}"
        write_checkpoint(path, state, about)
        # One that was found broken is no reserve, and goes as soon as it is replaced.
        whole = [name for name in self.names() if name not in self._broken]
        for name in [*self._broken, *whole[: -self.keep]]:
            remove_directory(self.directory / name)
        self._broken.clear()
        return path

    def about(self) -> dict[str, Any]:
        """What the newest checkpoint says about itself; nothing where there is none to be read."""
        for name in reversed(self.names()):
            try:
                return json.loads((self.directory / name / MANIFEST).read_bytes())["about"]
            except (OSError, ValueError, LookupError, TypeError):
                continue  # `newest` will tell what is wrong with it
        return {}

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint; None where there has never been one.

        A broken one is passed over with a warning that names it and its successor. UserError
        where all are broken: starting anew would overwrite the run without a word.
        """
        names = self.names()
        broken: list[str] = []
        for name in reversed(names):
            try:
                found = load_checkpoint(self.directory / name)
            except (OSError, ValueError, KeyError) as error:
                broken.append(f"checkpoint {name} is broken ({error})")
                self._broken.add(name)
                continue
            for line in broken:
                warnings.warn(f"{line}; falling back to {name}", stacklevel=2)
            return found
        if broken:
            raise UserError(
                f"{broken[0]}, and none before it is whole; restore {self.directory} from a copy, "
                "or start a new run"
            )
        return None


def write_checkpoint(path: Path, state: Any, about: Mapping[str, Any] | None = None) -> None:
    """Writes `state` as the directory `path`, which is there when it is whole, and not before.

    Raises OSError where the disk refuses, TypeError for what a checkpoint cannot hold.
    """
    skeleton, tensors = take_out(state)
    buffer = io.BytesIO()
    torch.save(skeleton, buffer)
    with atomic_directory(path) as partial:
        files: dict[str, dict[str, Any]] = {}
        with HashedFile(partial / TENSORS) as file:
            write_tensors(file, tensors)
        files[TENSORS] = {"bytes": file.size, "sha256": file.digest}
        with HashedFile(partial / STATE) as file:
            file.write(buffer.getbuffer())
        files[STATE] = {"bytes": file.size, "sha256": file.digest}
        with HashedFile(partial / MANIFEST) as file:
            manifest = {"format": FORMAT, "about": dict(about or {}), "files": files}
            file.write(json.dumps(manifest, indent=1).encode())


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads and checks one checkpoint. Raises ValueError or OSError saying what is wrong."""
    manifest = json.loads((path / MANIFEST).read_bytes())
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{MANIFEST} is not of format {FORMAT}")
    files = manifest.get("files")
    for name in (TENSORS, STATE):
        wanted = files.get(name) if isinstance(files, dict) else None
        if not isinstance(wanted, dict) or not {"bytes", "sha256"} <= set(wanted):
            raise ValueError(f"{MANIFEST} does not list {name}")
        size = (path / name).stat().st_size
        if size != wanted["bytes"]:
            raise ValueError(f"{name} has {size} bytes, wanted {wanted['bytes']}")
        if _digest(path / name) != wanted["sha256"]:
            raise ValueError(f"{name} has another SHA-256 than when it was written")
    # Tensors and plain data only: a checkpoint never runs code.
    try:
        skeleton = torch.load(path / STATE, weights_only=True)
        state = put_back(skeleton, read_tensors(path / TENSORS))
    # What torch.load, safetensors and `put_back` raise depends on the first bytes that are wrong.
    except Exception as error:
        raise ValueError(f"its state cannot be read: {unreadable(error)}") from error
    if not isinstance(state, dict):
        raise ValueError(f"{STATE} holds no state of a run")
    return Checkpoint(path, state)


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _match(path: Path) -> re.Match[str] | None:
    return _NAME.fullmatch(path.name) if path.is_dir() else None
