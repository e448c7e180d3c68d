"""Write and read checkpoints, whole or absent.

They are checked when read; the last and the tagged are kept.

A checkpoint is a directory `<number>-<label>`: the large tensors as `torch.distributed.checkpoint`
(DCP) writes them, every rank its shards, to be read on any number of ranks; `state.pt`, all else;
and, written last, `manifest.json`: size and CRC-32 of every file, taken by the rank that wrote it.
It is filled under a hidden name, brought to the disk, and then renamed; a directory without the
dot is therefore complete, and what a crash left under a hidden name is removed by the next owner
of the run. Old ones are hidden by a rename before they are deleted. So at every moment the newest
visible checkpoint is a whole one, unless the disk itself has lost something, which the checksums
tell.

All ranks call the functions that read or write at once. Checkpoints of format 1, of one rank, with
`tensors.safetensors` and SHA-256, are still read.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import pickle
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata

from rrgtrain.dist import ranks
from rrgtrain.errors import UserError, unreadable
from rrgtrain.state.tree import put_back, take_out
from rrgtrain.util.files import atomic_directory, atomic_write, remove_directory, remove_partial

FORMAT = 2
STATE, MANIFEST = "state.pt", "manifest.json"
_NAME = re.compile(r"(\d{6,})-(.+)")
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Checkpoint:
    """Hold a checkpoint that was found whole.

    Its place, what it says of itself, and its skeleton."""

    path: Path
    about: dict[str, Any]
    skeleton: dict[str, Any]

    @property
    def state(self) -> dict[str, Any]:
        """All of the state, with whole tensors on the CPU."""
        return self.read(*self.skeleton)

    def read(self, *keys: str, like: torch.Tensor | None = None) -> dict[str, Any]:
        """The named parts of the state.

        like: a sharded tensor; those that were written from shards are then sharded as it is, each
        rank reading its own, and otherwise whole. Plain tensors are on the CPU.
        """
        asked = {key: self.skeleton[key] for key in keys if key in self.skeleton}
        if (self.path / _TENSORS_1).exists():
            held = load_file(self.path / _TENSORS_1)
            return put_back(asked, lambda name, _: held[name])
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
            with _alone_is_fine():
                dcp.load(tensors, storage_reader=reader, no_dist=True)
        return state


class CheckpointStore:
    """The checkpoints below one directory; for the holder of the run's lock alone."""

    def __init__(self, directory: Path, keep: int) -> None:
        """keep: how many stay, at least 1. The disk needs room for one more while it is written."""
        self.directory, self.keep = directory, keep
        self._broken: set[str] = set()
        if ranks.is_main():
            directory.mkdir(exist_ok=True)
            remove_partial(directory)

    def names(self) -> list[str]:
        """Names of the checkpoints, oldest first."""
        found = [(int(m[1]), p.name) for p in self.directory.iterdir() if (m := _match(p))]
        return [name for _, name in sorted(found)]

    def save(
        self,
        label: str,
        state: Any,
        about: Mapping[str, Any] | None = None,
        tagged: Iterable[str] = (),
    ) -> Path:
        """Write a checkpoint of `state` (see `tree.take_out`) and remove the oldest.

        `about` is for a look that does not read it all; JSON must hold it. tagged: labels of older
        checkpoints that stay as long as this one does. Raises OSError where the disk refuses; what
        was kept before is then untouched.
        """
        names = ranks.broadcast_from_main(self.names() if ranks.is_main() else [])
        number = 1 + (int(names[-1].partition("-")[0]) if names else 0)
        path = self.directory / f"{number:06d}-{label}"
        write_checkpoint(path, state, {**(about or {}), "tagged": sorted(set(tagged))})
        with ranks.propagate_errors():
            if ranks.is_main():
                self._remove_old()
            ranks.barrier()
        self._broken.clear()
        return path

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
        return dict(json.loads((self.directory / name / MANIFEST).read_bytes())["about"])

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


def write_checkpoint(path: Path, state: Any, about: Mapping[str, Any] | None = None) -> None:
    """Write `state` as the directory `path`.

    It is there when it is whole, and not before.

    Raises OSError where the disk refuses, TypeError for what a checkpoint cannot hold.
    """
    with ranks.propagate_errors():
        skeleton, tensors = take_out(state)
        with _directory(path) as partial:
            _require_shared(partial)
            _save_tensors(tensors, partial)
            if ranks.is_main():
                buffer = io.BytesIO()
                torch.save(skeleton, buffer)
                atomic_write(partial / STATE, buffer.getvalue())
            own = [*partial.glob(f"__{ranks.rank()}_*")]
            own += [partial / STATE, partial / ".metadata"] if ranks.is_main() else []
            parts = ranks.gather({file.name: _entry(file) for file in own})
            if ranks.is_main():
                files = {name: entry for part in parts for name, entry in part.items()}
                manifest = {"format": FORMAT, "about": dict(about or {}), "files": files}
                atomic_write(partial / MANIFEST, json.dumps(manifest, indent=1))
        ranks.barrier()


def load_checkpoint(path: Path) -> Checkpoint:
    """Check one checkpoint, each rank its share of the files, and read its skeleton.

    Raises ValueError or OSError saying what is wrong.
    """
    with ranks.propagate_errors():
        found = _checked(path)
        ranks.barrier()
    return found


def _checked(path: Path) -> Checkpoint:
    manifest = json.loads((path / MANIFEST).read_bytes())
    if not isinstance(manifest, dict) or manifest.get("format") not in (1, FORMAT):
        raise ValueError(f"{MANIFEST} is not of format {FORMAT}")
    files: Any = manifest.get("files")
    for name in _FILES[manifest["format"]]:
        if not isinstance(files, dict) or not isinstance(files.get(name), dict):
            raise ValueError(f"{MANIFEST} does not list {name}")
    for name in ranks.shard(sorted(files)):
        entry = files[name]
        size = (path / name).stat().st_size
        if size != entry.get("bytes"):
            raise ValueError(f"{name} has {size} bytes, wanted {entry.get('bytes')}")
        if "sha256" in entry and _sha256(path / name) != entry["sha256"]:
            raise ValueError(f"{name} has another SHA-256 than when it was written")
        if "sha256" not in entry and _entry(path / name) != entry:
            raise ValueError(f"{name} has another CRC-32 than when it was written")
    # Tensors and plain data only: a checkpoint never runs code.
    try:
        skeleton = torch.load(path / STATE, weights_only=True)
        if manifest["format"] == FORMAT:
            _Reader(path).read_metadata()
    # What torch.load and pickle raise depends on the first bytes that are wrong.
    except Exception as error:
        raise ValueError(f"its state cannot be read: {unreadable(error)}") from error
    if not isinstance(skeleton, dict):
        raise ValueError(f"{STATE} holds no state of a run")
    return Checkpoint(path, dict(manifest.get("about") or {}), skeleton)


_TENSORS_1 = "tensors.safetensors"
_FILES = {1: (_TENSORS_1, STATE), FORMAT: (STATE, ".metadata")}


@contextmanager
def _directory(path: Path) -> Iterator[Path]:
    """A directory that all ranks fill; rank 0 makes it, and gives it its name at the end."""
    if ranks.is_main():
        with atomic_directory(path) as partial:
            yield ranks.broadcast_from_main(partial)
    else:
        yield ranks.broadcast_from_main(path)


def _require_shared(directory: Path) -> None:
    """OSError where a rank lacks rank 0's directory: DCP would make one of its own for its part."""
    seen = ranks.gather(directory.is_dir())
    if not all(seen):
        reason = f"rank {seen.index(False)} does not see this directory, and all must share it"
        raise OSError(errno.ENOENT, reason, str(directory))


def _save_tensors(tensors: dict[str, torch.Tensor], directory: Path) -> None:
    try:
        with _alone_is_fine():
            dcp.save(tensors, storage_writer=_Writer(directory), no_dist=ranks.size() == 1)
    except CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        raise cause from error


@contextmanager
def _alone_is_fine() -> Iterator[None]:
    """Hides DCP's warning that a process without others is one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _sharded(size: torch.Size, dtype: torch.dtype, like: Any) -> torch.Tensor:
    from torch.distributed import tensor

    return tensor.empty(size, dtype=dtype, device_mesh=like.device_mesh, placements=like.placements)


class _Writer(dcp.FileSystemWriter):
    """DCP's writer, which tells a full disk as such.

    `torch.save` raises a RuntimeError about its own position in the file in its place.
    """

    def write_data(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().write_data(*args, **kwargs)
        except RuntimeError as error:
            reason: BaseException | None = error
            while reason is not None and not isinstance(reason, OSError):
                reason = reason.__cause__ or reason.__context__
            raise reason or error from None


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


def _entry(path: Path) -> dict[str, int]:
    """Size and CRC-32 of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return {"bytes": size, "crc32": crc}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _match(path: Path) -> re.Match[str] | None:
    return _NAME.fullmatch(path.name) if path.is_dir() else None


def _label(name: str) -> str:
    return name.partition("-")[2]
