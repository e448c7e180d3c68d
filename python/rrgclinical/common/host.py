"""Find the memory and disk room of this process, and word how one ended."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import TracebackType

GROUPS = Path("/sys/fs/cgroup")
"""Where Linux shows control groups."""
UNLIMITED = 1 << 60


def room_on_disk(directory: Path) -> int:
    """Return the free bytes of the disk of `directory`, which need not exist."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def memory_of_host(proc: Path = Path("/proc"), groups: Path = GROUPS) -> int | None:
    """Return the bytes of memory that are available to this process.

    A container or a batch job has a control group whose limit may be below the machine's. None
    where the system does not say.
    """
    rooms = _rooms_of_groups(proc / "self" / "cgroup", groups)
    if (proc / "meminfo").is_file():
        kib = _numbers(proc / "meminfo").get("MemAvailable:")
        rooms += [] if kib is None else [kib * 1024]
    return min(rooms, default=None)


def _rooms_of_groups(own: Path, groups: Path) -> list[int]:
    """Bytes that this process's control groups leave, its own and those above.

    Of version 2, and of version 1's memory controller. Cached files count as free, since the kernel
    drops them when memory is wanted.
    """
    lines = own.read_text().splitlines() if own.is_file() else []
    rooms = _rooms(groups, "/", "memory.max", "memory.current", "")
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            rooms += _rooms(groups, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            rooms += _rooms(groups / "memory", path, *names)
    return rooms


def _rooms(top: Path, path: str, limit: str, used: str, of_tree: str) -> list[int]:
    """Bytes that a group and those above it leave; files have the names of their version.

    Without a limit version 2 says "max", and version 1 a number near 2**63: more than there is.
    """
    own, rooms = top / path.lstrip("/"), []
    for group in (own, *own.parents):
        if (group / limit).is_file() and (text := (group / limit).read_text().strip()) != "max":
            stat = _numbers(group / "memory.stat")
            files = (f"{of_tree}{kind}_file" for kind in ("active", "inactive"))
            taken = int((group / used).read_text()) - sum(stat.get(name, 0) for name in files)
            rooms += [max(0, int(text) - taken)] if int(text) < UNLIMITED else []
        if group == top:
            break
    return rooms


def _numbers(file: Path) -> dict[str, int]:
    words = (line.split() for line in file.read_text().splitlines())
    return {word[0]: int(word[1]) for word in words if len(word) > 1}


def unless_hung_up(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Be a worker's `sys.excepthook`: print an error, but not that its parent has hung up.

    A thread of multiprocessing hands tensors on and prints by this hook what it meets: a parent
    that is stopped while it takes one is no fault.
    """
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
