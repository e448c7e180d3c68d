"""Write a checkpoint in a thread, from copies in host memory, while training goes on.

`Write(...)` copies this rank's share (a GPU's into pinned buffers) and returns: from then on the
weights may change. The thread plans with the other ranks, over a process group of its own, writes
the shard by DCP's writer, and rank 0 ends with the manifest and the directory's name. `wait` gives
its result, or its error, which is the same on all ranks.

A copy is as large as what a rank writes: in fp32, 12 bytes for each trained weight of its shard,
moments included. The buffers stay for the next checkpoint, which waits for this one.

A step is held by the copy alone: 0.06 of the time of a whole write, for a policy of 100 MiB (300
MiB with its moments) on two cores of a CPU, `python -m bench.checkpoint --mib 100`. The write still
takes its time from the cores it runs on. On a GPU unmeasured.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
import threading
import traceback
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from rrgclinical.common.files import atomic_directory, atomic_write
from rrgclinical.common.shown import redacted
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.state.tree import take_out

FORMAT = 2
STATE, MANIFEST = "state.pt", "manifest.json"
_BLOCK = 1 << 22

Buffers = dict[MetadataIndex, torch.Tensor]


class Write:
    """Write a checkpoint in the background.

    All ranks make one at once, and `wait` for it. The directory `path` is there when it is
    whole, and not before.
    """

    def __init__(
        self,
        path: Path,
        state: Any,
        about: Mapping[str, Any],
        buffers: Buffers | None = None,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        """buffers: copies are made, in these of an earlier write where they fit; without, the
        tensors must not change until `wait` has returned. finished: called on rank 0 when the
        directory has its name. Raises TypeError for what a checkpoint cannot hold.
        """
        self.path, self._about, self._finished = path, dict(about), finished
        self._error: BaseException | None = None
        with ranks.propagate_errors():
            self._skeleton, tensors = take_out(state)
            self._planner = _Planner()
            self._planner.set_up_planner(tensors, is_coordinator=ranks.is_main())
            self._plan = self._planner.create_local_plan()
            if buffers is not None:
                self._planner.copy(self._plan, buffers)
        self._group = ranks.side_group()
        # a daemon: the second Ctrl-C does not wait for it
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """True when `wait` returns at once."""
        return not self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """True when `wait` would raise."""
        return self._error is not None

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; True when it has ended, whole or failed."""
        self._thread.join(timeout)
        return self.done

    def wait(self, timeout: float | None = None) -> None:
        """Return when the checkpoint is whole, or after `timeout` seconds.

        Raises OSError where the disk refuses, on all ranks the error of the first that met one.
        """
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            try:
                if ranks.is_main():
                    with atomic_directory(self.path) as partial:
                        self._fill(partial)
                    self._finished()
                else:
                    self._fill(self.path)
                self._gather()
            except Exception as error:
                # takes the place of what the other ranks wait for next
                self._gather(error=error)
                raise
        except Exception as error:
            self._error = error

    def _fill(self, partial: Path) -> None:
        """Fill rank 0's directory `partial`, each rank its part."""
        partial = self._gather(partial)[0]
        sees = self._gather(partial.is_dir())
        if not all(sees):
            # DCP would make one of its own for its part
            reason = f"rank {sees.index(False)} does not see this directory, and all must share it"
            raise OSError(errno.ENOENT, reason, str(partial))
        writer, metadata = _Writer(partial), Metadata({})
        skeleton = io.BytesIO()
        plans = self._gather(self._plan)
        if ranks.is_main():
            torch.save(self._skeleton, skeleton)
            plans, metadata = self._planner.create_global_plan(plans)
            plans = writer.prepare_global_plan(plans)
        plans = self._gather(plans if ranks.is_main() else None)[0]
        wanted = sum(_bytes(item) for plan in plans for item in plan.items)
        wanted = self._gather(wanted + len(skeleton.getvalue()))[0]
        if ranks.is_main():
            free = shutil.disk_usage(partial).free
            if free < wanted:
                raise _refused(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), wanted, free)
        try:
            plan = self._planner.finish_plan(plans[ranks.rank()])
            results = self._gather(writer.write_data(plan, self._planner).value())
            if ranks.is_main():
                writer.finish(metadata, results)
                atomic_write(partial / STATE, skeleton.getvalue())
        except OSError as error:
            if ranks.agreed_with(error) is None:
                raise _refused(error, wanted, shutil.disk_usage(partial).free) from error
            raise
        own = [*partial.glob(f"__{ranks.rank()}_*")]
        own += [partial / STATE, partial / ".metadata"] if ranks.is_main() else []
        parts = self._gather({file.name: file_entry(file) for file in own})
        files = {n: e for part in parts for n, e in part.items()}
        if ranks.is_main():
            manifest = {"format": FORMAT, "about": self._about, "files": files}
            atomic_write(partial / MANIFEST, json.dumps(manifest, indent=1))

    def _gather(self, value: Any = None, error: Exception | None = None) -> list[Any]:
        return ranks.gather_aside(self._group, value, error)


def write_checkpoint(path: Path, state: Any) -> None:
    """Write `state` as the directory `path`, all ranks at once; raises as `Write` does."""
    with ranks.propagate_errors():
        Write(path, state, {}).wait()


def file_entry(path: Path) -> dict[str, int]:
    """Size and CRC-32 of a file, as the manifest has them."""
    size = crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return {"bytes": size, "crc32": crc}


class _Planner(dcp.DefaultSavePlanner):
    """DCP's planner, which hands out the copies of what it has planned, where there are any."""

    copies: Buffers | None = None

    def copy(self, plan: SavePlan, buffers: Buffers) -> None:
        """Copy what is planned into `buffers`, in place where shapes and dtypes are the same."""
        wanted: Buffers = {}
        for item in plan.items:
            live = self.resolve_data(item)
            assert isinstance(live, torch.Tensor)
            buffer = buffers.get(item.index)
            if buffer is None or (buffer.shape, buffer.dtype) != (live.shape, live.dtype):
                pinned = live.is_cuda
                buffer = torch.empty(live.shape, dtype=live.dtype, pin_memory=pinned)
            wanted[item.index] = buffer.copy_(live, non_blocking=True)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        buffers.clear()
        buffers.update(wanted)
        self.copies, self.state_dict = wanted, {}

    def lookup_object(self, index: MetadataIndex) -> Any:
        return super().lookup_object(index) if self.copies is None else self.copies[index]


class _Writer(dcp.FileSystemWriter):
    """DCP's writer, which tells a full disk as such.

    `torch.save` raises a RuntimeError about its own position in the file in its place.
    """

    def __init__(self, directory: Path) -> None:
        # of tensors on the CPU nothing is copied ahead
        super().__init__(directory, per_thread_copy_ahead=0)

    def write_data(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().write_data(*args, **kwargs)
        except RuntimeError as error:
            reason: BaseException | None = error
            while reason is not None and not isinstance(reason, OSError):
                reason = reason.__cause__ or reason.__context__
            raise reason or error from None


def _bytes(item: WriteItem) -> int:
    assert item.tensor_data is not None
    return math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize


def _refused(error: OSError, wanted: int, free: int) -> OSError:
    sizes = f"{wanted / 2**20:.1f} MiB to be written, {free / 2**20:.1f} MiB free"
    return OSError(error.errno, f"{error.strerror} ({sizes})", error.filename)


def first_line(error: Exception) -> str:
    """The error's class and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def keep_batch(path: Path, state: Mapping[str, Any]) -> str:
    """Write the batch of a failed step; all ranks together. Returns words for the line."""
    try:
        write_checkpoint(path, dict(state))
    except OSError as full:
        return f"; its batch could not be kept ({full.strerror})"
    return f"; its batch is kept in {path}"


def keep_trace(path: Path, error: Exception) -> str:
    """Write the traceback on rank 0. Returns words for the line."""
    if not ranks.is_main():
        return ""
    try:
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, redacted("".join(traceback.format_exception(error))))
    except (OSError, UserError):  # the error itself is what is told
        return ""
    return f" (traceback in {path})"
