"""Write and read checkpoints, whole or absent.

They are checked when read; the last and the tagged are kept.

A checkpoint is a directory `<number>-<label>`: the large tensors as `torch.distributed.checkpoint`
(DCP) writes them, every rank its shards, to be read on any number of ranks; `state.pt`, all else;
and, written last, `manifest.json`: size and CRC-32 of every file, taken by the rank that wrote it.
`write` fills it, in a thread beside the training, under a hidden name, brings it to the disk, and
renames it; a directory without the dot is therefore complete, and what a crash left under a hidden
name is removed by the next owner of the run. Old ones are hidden by a rename before they are
deleted. So at every moment the newest visible checkpoint is a whole one, unless the disk itself has
lost something, which the checksums tell.

All ranks call the functions that read or write at once.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata

from rrgclinical.common import json_reader
from rrgclinical.common.errors import unreadable
from rrgclinical.common.files import remove_directory
from rrgpolicy.ranks import ranks
from rrgtrain.errors import Stopped, UserError
from rrgtrain.state.tree import put_back
from rrgtrain.state.write import (
    FORMAT,
    MANIFEST,
    STATE,
    Buffers,
    Write,
    file_entry,
    write_checkpoint,
)

__all__ = [
    "MANIFEST",
    "STATE",
    "Checkpoint",
    "CheckpointStore",
    "load_checkpoint",
    "write_checkpoint",
]

# Seconds after which ranks that wait for a checkpoint ask whether all are there.
_POLL = 5.0
_NAME = re.compile(r"(\d{6,})-(.+)")


@dataclass(frozen=True)
class Checkpoint:
    """Hold a checkpoint that was found whole: its place, description and skeleton."""

    path: Path
    about: dict[str, Any]
    skeleton: dict[str, Any]

    @property
    def state(self) -> dict[str, Any]:
        return self.read(*self.skeleton)

    def read(self, *keys: str, like: torch.Tensor | None = None) -> dict[str, Any]:
        """The named parts of the state.

        like: a sharded tensor; those that were written from shards are then sharded as it is, each
        rank reading its own, and otherwise whole. Plain tensors are on the CPU.
        """
        asked = {key: self.skeleton[key] for key in keys if key in self.skeleton}
        reader = _Reader(self.path)
        saved: Any = reader.read_metadata().state_dict_metadata
        tensors: dict[str, torch.Tensor] = {}

        def empty(name: str, sharded: bool) -> torch.Tensor:
            if name not in tensors:
                size, dtype = saved[name].size, saved[name].properties.dtype
                if sharded and like is not None:
                    tensors[name] = _sharded(size, dtype, like)
                else:
                    tensors[name] = torch.empty(size, dtype=dtype)
            return tensors[name]

        state = put_back(asked, empty)
        if tensors:
            with warnings.catch_warnings():
                # that a process without others is one
                warnings.filterwarnings("ignore", "torch.distributed is disabled")
                dcp.load(tensors, storage_reader=reader, no_dist=True)
        return state


class CheckpointStore:
    """The checkpoints below one directory; the holder of the run's lock alone writes them."""

    def __init__(self, directory: Path, keep: int) -> None:
        """keep: how many stay, at least 1. The disk needs room for one more while it is written."""
        self.directory, self.keep = directory, keep
        self._broken: set[str] = set()
        self._write: Write | None = None
        self._buffers: Buffers = {}
        if ranks.is_main():
            directory.mkdir(exist_ok=True)

    def names(self) -> list[str]:
        if not self.directory.is_dir():  # rank 0 is about to make it
            return []
        folders = [path.name for path in self.directory.iterdir() if path.is_dir()]
        found = [(int(m[1]), name) for name in folders if (m := _NAME.fullmatch(name))]
        return [name for _, name in sorted(found)]

    def begin(
        self,
        label: str,
        state: Any,
        about: Mapping[str, Any] | None = None,
        tagged: Iterable[str] = (),
    ) -> Path:
        """Copy `state` (see `tree.take_out`) and write it in the background, once `wait` is over.

        `about` is for a look that does not read it all; JSON must hold it. tagged: labels of older
        checkpoints that stay as long as this one does; of the others the oldest then go.
        """
        self.wait()
        names = ranks.broadcast_from_main(self.names() if ranks.is_main() else [])
        number = 1 + (int(names[-1].partition("-")[0]) if names else 0)
        path = self.directory / f"{number:06d}-{label}"
        about = {**(about or {}), "tagged": sorted(set(tagged))}
        self._write = Write(path, state, about, self._buffers, self._remove_old)
        return path

    @property
    def writing(self) -> bool:
        """True while a checkpoint that was begun is not yet on the disk."""
        return self._write is not None and not self._write.done

    @property
    def failed(self) -> bool:
        """True when the checkpoint that was begun could not be written."""
        return self._write is not None and self._write.failed

    def wait(self) -> None:
        """Return when what was begun is on the disk.

        Raises OSError where the disk refuses; nothing stays of it, and what was kept before is
        untouched.
        """
        # the threads would wait for a rank that does not answer as long as for a slow disk
        while self._write is not None and not all(ranks.gather(self._write.join(_POLL))):
            pass
        self.wait_alone(None)

    def wait_alone(self, timeout: float | None) -> None:
        """Do as `wait`, on this rank alone and for `timeout` seconds at most."""
        if self._write is None:
            return
        write, self._write = self._write, None
        write.wait(timeout)
        self._broken.clear()

    def labelled(self, label: str) -> Path:
        """The first checkpoint of that label. Raises UserError where there is none.

        A later one may hold other weights: where a loop has gone back to its best ones, the number
        of steps stays.
        """
        for name in self.names():
            if _label(name) == label and name not in self._broken:
                return self.directory / name
        raise UserError(
            f"the checkpoint {label} is gone from {self.directory}, and its weights are wanted; "
            "restore it from a copy, or start a new run"
        )

    def _remove_old(self) -> None:
        # One that was found broken is no reserve, and goes as soon as it is replaced.
        whole = [name for name in self.names() if name not in self._broken]
        last = whole[-self.keep :]
        tagged = {label for name in last for label in self._tagged(name)}
        first = {_label(name): name for name in reversed(whole)}
        stay = {*last, *(first[label] for label in tagged if label in first)}
        for name in self.names():
            if name not in stay:
                remove_directory(self.directory / name)

    def _tagged(self, name: str) -> list[str]:
        try:
            return list(self._about(name).get("tagged", []))
        except (OSError, ValueError, LookupError, TypeError):
            return []  # it cannot be gone on from, so it wants nothing

    def _about(self, name: str) -> dict[str, Any]:
        return dict(json_reader.read(self.directory / name / MANIFEST, dict)["about"])

    def about(self) -> dict[str, Any]:
        """Return the newest checkpoint's description; empty where none can be read."""
        for name in reversed(self.names()):
            try:
                return self._about(name)
            except (OSError, ValueError, LookupError, TypeError):
                continue  # `newest` will tell what is wrong with it
        return {}

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint; None where there has never been one.

        A broken one is passed over with a warning that names it and its successor. UserError
        where all are broken: starting anew would overwrite the run without a word.
        """
        broken: list[str] = []
        for name in reversed(ranks.broadcast_from_main(self.names() if ranks.is_main() else [])):
            try:
                found = load_checkpoint(self.directory / name)
            except (OSError, ValueError, KeyError) as error:
                broken.append(f"checkpoint {name} is broken ({error})")
                self._broken.add(name)
                continue
            for line in broken if ranks.is_main() else []:
                warnings.warn(f"{line}; falling back to {name}", stacklevel=2)
            return found
        if broken:
            raise UserError(
                f"{broken[0]}, and none before it is whole; restore {self.directory} from a copy, "
                "or start a new run"
            )
        return None


def load_checkpoint(path: Path) -> Checkpoint:
    """Check one checkpoint, each rank its share of the files, and read its skeleton.

    Raises ValueError or OSError saying what is wrong.
    """
    with ranks.propagate_errors():
        found = _checked(path)
        ranks.barrier()
    return found


def _checked(path: Path) -> Checkpoint:
    manifest = json_reader.read(path / MANIFEST, dict)
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{MANIFEST} is not of format {FORMAT}")
    files: Any = manifest.get("files")
    for name in (STATE, ".metadata"):
        if not isinstance(files, dict) or not isinstance(files.get(name), dict):
            raise ValueError(f"{MANIFEST} does not list {name}")
    for name in ranks.shard(sorted(files)):
        entry = files[name]
        size = (path / name).stat().st_size
        if size != entry.get("bytes"):
            raise ValueError(f"{name} has {size} bytes, wanted {entry.get('bytes')}")
        if file_entry(path / name) != entry:
            raise ValueError(f"{name} has another CRC-32 than when it was written")
    # Tensors and plain data only: a checkpoint never runs code.
    try:
        skeleton = torch.load(path / STATE, weights_only=True)
        _Reader(path).read_metadata()
    # What torch.load and pickle raise depends on the first bytes that are wrong.
    except Stopped:  # no fault of the checkpoint, which is not passed over
        raise
    except Exception as error:
        raise ValueError(f"its state cannot be read: {unreadable(error)}") from error
    if not isinstance(skeleton, dict):
        raise ValueError(f"{STATE} holds no state of a run")
    return Checkpoint(path, dict(manifest.get("about") or {}), skeleton)


def _sharded(size: torch.Size, dtype: torch.dtype, like: Any) -> torch.Tensor:
    from torch.distributed import tensor

    return tensor.empty(size, dtype=dtype, device_mesh=like.device_mesh, placements=like.placements)


class _Reader(dcp.FileSystemReader):
    """DCP's reader, whose metadata is a pickle: it makes no objects but those DCP writes."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _Unpickler(file).load()
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = "pathlib" if module == "pathlib._local" else module  # as Python 3.13 calls it
        if name in _CLASSES.get(module, ()) or isinstance(
            module == "torch" and getattr(torch, name, None), torch.dtype
        ):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint")


_CLASSES = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "pathlib": {"PosixPath"},
}


def _label(name: str) -> str:
    return name.partition("-")[2]
